package spec

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// head reads what one of the files says for all: version, which every file
// says, and name, vhost, cluster and countHeader, which one says.
func (d *decoder) head(f fields) {
	if _, ok := f.values["version"]; ok {
		if v, ok := d.number(f, "version", 1); ok && v != 1 {
			d.problem(d.pos(f, "version"), fmt.Sprintf("version is %d", v), "this release reads version 1 only")
		}
	}
	if name, ok := d.only(f, "name"); ok {
		d.spec.NamePos = d.pos(f, "name")
		if d.isName(d.spec.NamePos, "name", name) {
			d.spec.Name = name
		}
	}
	if vhost, ok := d.only(f, "vhost"); ok {
		d.spec.VHost = vhost
	}
	if cluster, ok := d.only(f, "cluster"); ok {
		d.spec.Cluster = cluster
	}
	if header, ok := d.only(f, "countHeader"); ok {
		d.countHeader(d.pos(f, "countHeader"), header)
	}
	d.messages(f)
}

// only returns the text under a key that one file alone may give.
func (d *decoder) only(f fields, name string) (string, bool) {
	v, ok := f.values[name]
	if !ok || !d.claim(d.at(v.key), name) {
		return "", false
	}
	return d.textOf(v.value, name)
}

// claim notes where a key was given, and refuses it from a second file.
func (d *decoder) claim(pos Pos, name string) bool {
	if first, ok := d.heads[name]; ok {
		fix := "the files of one topology set it once"
		if name == "name" {
			fix += "; for a topology of its own run this file alone"
		}
		d.problem(pos, fmt.Sprintf("%s is already set at %s:%d", name, first.File, first.Line), fix)
		return false
	}
	if d.heads == nil {
		d.heads = map[string]Pos{}
	}
	d.heads[name] = pos
	return true
}

// isName checks a topology or backoff name.
func (d *decoder) isName(pos Pos, what, name string) bool {
	if regexp.MustCompile(namePattern).MatchString(name) {
		return true
	}
	d.problem(pos, fmt.Sprintf("%s is %q", what, name),
		"write 1 to 63 letters, digits, _ and -, beginning with a letter or a digit")
	return false
}

func (d *decoder) countHeader(pos Pos, name string) {
	fix := ""
	switch {
	case strings.HasPrefix(name, "x-"):
		fix = "headers exchanges ignore names that begin with x-: choose another, such as count"
	case name == "" || len(name) > topology.MaxNameBytes:
		fix = "write 1 to 255 bytes"
	case name == topology.CC || name == topology.BCC || strings.HasPrefix(name, topology.RetryPrefix):
		fix = "CC, BCC and names that begin with retry- are reserved: choose another, such as count"
	default:
		d.spec.CountHeader = name
		return
	}
	d.problem(pos, fmt.Sprintf("countHeader is %q", name), fix)
}
