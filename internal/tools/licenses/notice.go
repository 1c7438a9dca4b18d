package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// known are the licenses that may be linked into dlxctl, each with the phrases that its text has.
// All of them allow to pass on a program under another license. The MPL wants the source of its
// files to be available, which it is, under the version that NOTICE names.
func known() map[string][]string {
	return map[string][]string{
		"Apache-2.0":   {"Apache License", "Version 2.0"},
		"BSD-2-Clause": {"Redistribution and use in source and binary forms"},
		"BSD-3-Clause": {"Redistribution and use in source and binary forms", "contributors may be used to endorse"},
		"MIT":          {"Permission is hereby granted, free of charge, to any person obtaining"},
		"MPL-2.0":      {"Mozilla Public License", "2.0", "Covered Software"},
	}
}

// refused are words of licenses that are not allowed, in whatever text they are. A license that is
// neither known nor refused is refused too.
func refused() []string {
	return []string{
		"GNU GENERAL PUBLIC LICENSE", "GNU AFFERO", "GNU LESSER", "Business Source License",
		"Server Side Public License", "Commons Clause", "Elastic License",
	}
}

// licenses returns the licenses of a module by their names in SPDX. A module may have several.
func (m module) licenses() []string {
	found := map[string]bool{}
	for name, text := range m.texts {
		if !isLicense(name) {
			continue
		}
		plain := strings.Join(strings.Fields(text), " ")
		for id, phrases := range known() {
			if !slices.ContainsFunc(phrases, func(phrase string) bool { return !strings.Contains(plain, phrase) }) {
				found[id] = true
			}
		}
	}
	if found["BSD-3-Clause"] { // which has all of the other's text
		delete(found, "BSD-2-Clause")
	}
	return slices.Sorted(maps.Keys(found))
}

// isLicense reports whether the file is a license, and not what comes with one.
func isLicense(name string) bool {
	base := strings.ToUpper(name[strings.LastIndexByte(name, '/')+1:])
	return !strings.HasPrefix(base, "NOTICE") && !strings.HasPrefix(base, "PATENTS")
}

// allowed returns an error unless all licenses of the module are known.
func (m module) allowed() error {
	for name, text := range m.texts {
		if !isLicense(name) {
			continue
		}
		for _, words := range refused() {
			// The MPL names the licenses that it goes together with.
			if !strings.Contains(text, "Mozilla Public License") &&
				strings.Contains(strings.ToUpper(text), strings.ToUpper(words)) {
				return fmt.Errorf("%s: %s has the words %q, a license that is not allowed", m.path, name, words)
			}
		}
		if len(module{texts: map[string]string{name: text}}.licenses()) == 0 {
			return fmt.Errorf("%s: %s is not a license that is allowed, or an unknown text", m.path, name)
		}
	}
	if len(m.licenses()) == 0 {
		return fmt.Errorf("%s has no license", m.path)
	}
	return nil
}

// notice returns the text of NOTICE: a table, and then each text once, with those that have it.
func notice(modules []module) []byte {
	var b bytes.Buffer
	b.WriteString("dlxctl\nCopyright 2026 the dlxctl authors\n\n" +
		"dlxctl is licensed under the Apache License, Version 2.0; see LICENSE. The program contains the\n" +
		"modules of this table. Their source is at https://pkg.go.dev/MODULE@VERSION.\n\n")
	width := 0
	for _, m := range modules {
		width = max(width, len(m.name()))
	}
	for _, m := range modules {
		fmt.Fprintf(&b, "%-*s  %s\n", width, m.name(), strings.Join(m.licenses(), ", "))
	}
	users := map[string][]string{} // of each text
	var texts []string
	for _, m := range modules {
		for _, name := range slices.Sorted(maps.Keys(m.texts)) {
			text := strings.Trim(m.texts[name], "\n")
			if users[text] == nil {
				texts = append(texts, text)
			}
			users[text] = append(users[text], m.path+": "+name)
		}
	}
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[text], "\n"), text)
	}
	return b.Bytes()
}

// name returns the module with its version. The version of Go is that of the build.
func (m module) name() string { return strings.TrimSuffix(m.path+" "+m.version, " ") }
