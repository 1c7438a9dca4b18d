package spec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/topology"
)

const notifyHead = "version: 1\nname: shop\nqueues: [{name: q, backoff: none}]\n"

// The targets are those of all files. What ${VAR} stands for is in none of them, and in no JSON.
func TestNotifyTargets(t *testing.T) {
	t.Parallel()
	c, _, err := Load([]Source{
		{Name: "a", Data: []byte(notifyHead + `notify:
  - {to: "slack+${HOOK}", severity: page, owner: [crm, "${TEAM}"]}
`)},
		{Name: "b", Data: []byte("version: 1\nnotify: [{to: 'https://h/${UNSET}', severity: [page, info], template: '{{.Queue}}'}]\n")},
	}, environmentOf(map[string]string{"HOOK": "https://hooks/s3cret", "TEAM": "billing"}))
	want := []topology.NotifyTarget{
		{
			To: "slack+${HOOK}", Severities: []string{"page"}, Owners: []string{"crm", "billing"},
			Place: topology.Place{File: "a", Line: 5},
		},
		{
			To: "https://h/${UNSET}", Severities: []string{"page", "info"}, Template: "{{.Queue}}",
			Place: topology.Place{File: "b", Line: 2},
		},
	}
	if d := cmp.Diff(want, c.Notify); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if data, err := json.Marshal(c); err != nil || strings.Contains(string(data), "HOOK") {
		t.Errorf("the JSON has the targets: %v", err)
	}
}

// No problem quotes an address.
func TestNotifyProblems(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"{severity: page}":                          "a:4:10: a target of notify has no to; add to: …",
		"{to: [s3cret]}":                            "a:4:15: to is not text; write an address such as https://HOST/PATH",
		"{to: 'ftp://h/s3cret'}":                    "a:4:15: to is not the address of a target: its scheme is not known; write https://, slack+https://, smtp:// or smtps://",
		"{to: 'https://${BAD}/s3cret'}":             "a:4:15: to is not the address of a target: it is not a URL",
		"{to: 'https://${x y}/s3cret'}":             "a:4:15: to is not readable: ${ must be followed by a variable's name and }",
		"{to: 'https://h', severity: x}":            `a:4:38: severity is "x"; write page, ticket or info`,
		"{to: 'https://h', owner: []}":              "a:4:35: owner is empty; name one at least, or remove the key for all",
		"{to: 'https://h', template: '{{.Nope}}'}":  `a:4:38: template cannot be used: template:1:2: executing "template" at <.Nope>`,
		"{to: 'https://h', template: '{{'}":         "a:4:38: template cannot be used: ",
		"{to: 'https://h', template: ' '}":          "a:4:38: template is the text \" \", not a template",
		"{to: 'smtp://u:s3cret@h', servrity: page}": `a:4:36: a target of notify has no key "servrity"; did you mean "severity"?`,
	} {
		_, _, err := Decode([]Source{{Name: "a", Data: []byte(notifyHead + "notify: [" + target + "]")}},
			environmentOf(map[string]string{"BAD": "s3cret host"}))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s:\n%v\nwant %s", target, err, want)
		}
	}
}

func environmentOf(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}
