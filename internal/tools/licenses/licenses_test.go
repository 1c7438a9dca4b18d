package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestLicenses(t *testing.T) {
	t.Parallel()
	apache, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	const (
		mit  = "Permission is hereby granted, free of charge, to any person\nobtaining a copy"
		bsd2 = "Redistribution and use in source and binary forms, with or without"
		bsd3 = bsd2 + "\nits contributors may be used to endorse or promote"
	)
	for name, tc := range map[string]struct {
		texts map[string]string
		want  string // the licenses, or a part of the error
	}{
		"one":                   {map[string]string{"LICENSE": mit}, "[MIT]"},
		"two in a file":         {map[string]string{"LICENSE": mit + bsd3}, "[BSD-3-Clause MIT]"},
		"the shorter BSD":       {map[string]string{"LICENSE": bsd2}, "[BSD-2-Clause]"},
		"one of a package":      {map[string]string{"LICENSE": string(apache), "zstd/LICENSE.txt": mit}, "[Apache-2.0 MIT]"},
		"with notice, patents":  {map[string]string{"LICENSE": mit, "NOTICE": "by X", "PATENTS": "a grant"}, "[MIT]"},
		"none":                  {nil, "m has no license"},
		"notice alone":          {map[string]string{"NOTICE": mit}, "m has no license"},
		"an unknown one":        {map[string]string{"LICENSE": "All rights reserved."}, "m: LICENSE is not a license"},
		"unknown in a package":  {map[string]string{"LICENSE": mit, "x/COPYING": "Ask me."}, "m: x/COPYING is not a license"},
		"copyleft":              {map[string]string{"LICENSE": "GNU General Public License\n" + mit}, "not allowed"},
		"copyleft next to free": {map[string]string{"LICENSE": mit, "COPYING": "GNU Affero " + mit}, "not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := module{path: "m", texts: tc.texts}
			got := fmt.Sprint(m.licenses())
			if err := m.allowed(); err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Each text is there once, with all modules that have it.
func TestNotice(t *testing.T) {
	t.Parallel()
	const mit = "Permission is hereby granted, free of charge, to any person obtaining"
	got := string(notice([]module{
		{"one", "v1.0.0", map[string]string{"LICENSE": mit}},
		{"two", "v2.0.0", map[string]string{"LICENSE.md": "\n" + mit + "\n", "NOTICE": "by X"}},
	}))
	if strings.Count(got, mit) != 1 || !strings.Contains(got, "one: LICENSE\ntwo: LICENSE.md\n\n"+mit+"\n") ||
		!strings.Contains(got, "\none v1.0.0  MIT\ntwo v2.0.0  MIT\n") || !strings.Contains(got, "two: NOTICE\n\nby X\n") {
		t.Errorf("NOTICE is\n%s", got)
	}
}
