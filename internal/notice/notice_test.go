package notice_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/notice"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]notice.Address{
		"https://h/x?y": {Kind: notice.Webhook, URL: "https://h/x?y", Name: "https://h", Host: "h"},
		"slack+https://hooks:8443/T0": {
			Kind: notice.Slack, URL: "https://hooks:8443/T0", Name: "slack+https://hooks:8443", Host: "hooks",
		},
		"smtp://h?from=a@x.org&to=b@x.org": {
			Kind: notice.Mail, Name: "smtp://h", Host: "h", Port: 587, From: "a@x.org", To: []string{"b@x.org"},
		},
		"smtps://u:p%40%2F@h:1/?from=A%20B%20<a@x.org>&to=b@x.org&to=c%2Bd@x.org,e@x.org": {
			Kind: notice.Mail, Name: "smtps://h:1", Host: "h", Port: 1, TLS: true, User: "u", Password: "p@/",
			From: "a@x.org", To: []string{"b@x.org", "c+d@x.org", "e@x.org"},
		},
	} {
		got, err := notice.ParseAddress(s)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", s, err, d)
		}
	}
}

// No error says anything of an address.
func TestAddressesThatAreNone(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                                  "is not a URL with a host",
		"s3cret":                            "is not a URL with a host",
		"https://":                          "is not a URL with a host",
		"https://h/s3cret\x7f":              "is not a URL",
		"ftp://h/s3cret":                    "scheme is not known",
		"smtp://s3cret@h":                   "not one from and a to",
		"smtp://h?from=s3cret&to=b":         "from is not the address of a mailbox",
		"smtp://h?from=a@b&to=s3cret":       "to is not the address of a mailbox",
		"smtp://h?from=a@b&to=c@d&s3cret=1": "a parameter other than from and to",
		"smtp://h?from=a@b&from=c@d&to=e@f": "not one from",
		"smtp://h:99999?from=a@b&to=c@d":    "port is not a number",
		"smtp://h?from=a@b&to=c@d%0d%0aBcc:s3cret@x": "to is not the address",
		"smtp://h?from=a@b%0d%0aBcc:s3cret@x&to=c@d": "from is not the address",
		"smtp://h?from=%zz":                          "is not readable",
	} {
		_, err := notice.ParseAddress(s)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, want %s", s, err, want)
		}
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	for s, ok := range map[string]bool{
		"{{.Queue}} {{.Severity}} {{.Owner}} {{.Messages}} {{.Command}}": true,
		"{{.Nothing}}": false, "{{": false, "{{if .Error}}x": false, "{{printf \"%s\" .Error}}": true,
	} {
		if _, err := notice.ParseTemplate(s); (err == nil) != ok {
			t.Errorf("%s: %v", s, err)
		}
	}
	long, err := notice.ParseTemplate(`{{range $i := .Messages}}{{$.Queue}}{{end}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := long.Text(notice.Notice{Queue: "queue", Messages: 1_000_000}, nil); err != nil || len(got) > 4<<10 {
		t.Errorf("%v: a text of %d bytes", err, len(got))
	}
}

// The command of the desk is one that can be pasted, whatever a queue is named.
func TestTheCommandIsQuoted(t *testing.T) {
	t.Parallel()
	n := notice.Notice{Queue: "a'; rm -rf ~ #"}
	if want := `dlxctl desk list '@a'\''; rm -rf ~ #'`; n.Command() != want {
		t.Errorf("%s, want %s", n.Command(), want)
	}
}

// Nothing that a message or a queue is named or says calls people in a chat, or shows a link or an
// image. Mattermost looks for mentions outside of code alone: GetExplicitMentions of its server.
func TestNoTextCallsPeople(t *testing.T) {
	t.Parallel()
	n := notice.Notice{
		Event: "dead_letter", Queue: "here", MovedTo: "@all", Attempts: 2,
		Error: "` @channel,@@here:x.@all <!channel> ![x](https://h/t.png) of ann@example.com",
	}
	said := n.Line(notice.Escape)
	code := "`dlxctl desk list @here`"
	if !strings.HasSuffix(said, code) || strings.Count(said, "`") != 2 {
		t.Fatalf("the command is not all of the code: %s", said)
	}
	if !strings.Contains(said, "ann@example.com") {
		t.Errorf("an address cannot be copied: %s", said)
	}
	for _, calls := range []string{"@channel", "@here", "@all", "<", "]("} {
		if strings.Contains(strings.TrimSuffix(said, code), calls) {
			t.Errorf("it has %s: %s", calls, said)
		}
	}
	mail := n.Line(nil)
	if !strings.HasSuffix(mail, "; dlxctl desk list @here") || !strings.Contains(mail, "@channel,@@here") {
		t.Errorf("a mail says: %s", mail)
	}
	template, err := notice.ParseTemplate("{{.MovedTo}}: {{.Command}}")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := template.Text(n, notice.Escape); err != nil || got != "@\u2060all: "+code {
		t.Errorf("%v: the text of a template is %s", err, got)
	}
}
