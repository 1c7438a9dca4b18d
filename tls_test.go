package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/cmd"
)

const insecure = "dlxctl: WARNING: the broker's certificate is not checked (--insecure-skip-verify): anybody on the way can read the password and every message\n"

// secured gives the flags that name the doors of a node by TLS.
func secured(amqp, api string, more ...string) []string {
	return append([]string{"--url", "amqps://guest:guest@" + amqp + "/", "--api", "https://" + api}, more...)
}

// run runs the program, without a broker of its own choice.
func run(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	code = cmd.Main(args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

// A node that asks for client certificates, whose own certificate a private
// authority has signed: every command works with the right files, over both
// doors, and says what is wrong with others.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	authority, stranger := brokertest.NewAuthority(t), brokertest.NewAuthority(t)
	client, foreign := authority.Sign(t, time.Hour), stranger.Sign(t, time.Hour)
	_, amqp, api := brokertest.NodeWithTLS(t, authority.Sign(t, time.Hour, "127.0.0.1", "broker.example"), &authority)
	dir := t.TempDir()
	file := filepath.Join(dir, "topology.yaml")
	writeTo(t, file, "version: 1\nname: shop\ndefaults: {backoff: a}\nbackoff: {a: {tiers: [1s]}}\nqueues: [{name: q}, {name: new, replaces: old}]\n")
	password := filepath.Join(dir, "password")
	writeTo(t, password, "guest\n")
	files := []string{"--ca-file", authority.File, "--cert-file", client.CertFile, "--key-file", client.KeyFile}

	for _, command := range []string{
		"plan", "apply --yes", "plan --detailed-exitcode", "status", "process --until-empty", "migrate --yes", "migrate status", "apply --yes --wait",
	} {
		if code, out := run(t, append(strings.Fields(command), secured(amqp, api, append(files, "-f", file)...)...)...); code != 0 {
			t.Errorf("%s exits with %d:\n%s", command, code, out)
		}
	}
	query := "?cacertfile=" + authority.File + "&certfile=" + client.CertFile + "&keyfile=" + client.KeyFile
	byQuery := []string{"--url", "amqps://guest:guest@" + amqp + "/" + query, "--api", "https://" + api}
	byName := append([]string{"--url", "amqps://guest:guest@" + strings.Replace(amqp, "127.0.0.1", "localhost", 1) + "/?server_name_indication=broker.example", "--api", "https://" + strings.Replace(api, "127.0.0.1", "localhost", 1)}, files...)
	byFile := append([]string{"--url", "amqps://guest:wrong@" + amqp + "/", "--api", "https://" + api, "--password-file", password}, files...)
	for name, flags := range map[string][]string{"files in the query": byQuery, "another name": byName, "a password in a file": byFile} {
		for _, command := range []string{"plan", "process --until-empty"} {
			if code, out := run(t, append(strings.Fields(command), append(flags, "-f", file)...)...); code != 0 {
				t.Errorf("%s: %s exits with %d:\n%s", name, command, code, out)
			}
		}
	}

	for name, tc := range map[string]struct {
		flags []string
		text  string
	}{
		"an authority that is not known": {secured(amqp, api, files[2:]...), "its certificate is signed by an authority that is not trusted here: name the authority's certificate with --ca-file"},
		"another authority":              {secured(amqp, api, append(files[2:], "--ca-file", stranger.File)...), "its certificate is signed by an authority that is not trusted here: name the authority's certificate with --ca-file"},
		"no certificate":                 {secured(amqp, api, files[:2]...), "if it asks for a client certificate, name one with --cert-file and --key-file"},
		"a certificate of somebody else": {secured(amqp, api, "--ca-file", authority.File, "--cert-file", foreign.CertFile, "--key-file", foreign.KeyFile), "it ends the TLS handshake"},
		"another host": {
			append([]string{"--url", "amqps://guest:guest@" + strings.Replace(amqp, "127.0.0.1", "localhost", 1) + "/", "--api", "https://" + strings.Replace(api, "127.0.0.1", "localhost", 1)}, files...),
			"its certificate is for another host: use a host name that the certificate has, or add server_name_indication=NAME to the AMQP URL",
		},
		"a wrong password":      {append([]string{"--url", "amqps://guest:s3cr3t-word@" + amqp + "/", "--api", "https://" + api}, files...), `user "guest" is refused by`},
		"http where TLS is":     {append([]string{"--url", "amqp://guest:guest@" + amqp + "/", "--api", "http://" + api}, files...), "127.0.0.1"},
		"a key without a cert":  {secured(amqp, api, "--key-file", client.KeyFile), "--key-file needs --cert-file, the certificate of that key"},
		"a key of another cert": {secured(amqp, api, "--cert-file", client.CertFile, "--key-file", foreign.KeyFile), "private key does not match public key"},
		"no such authority":     {secured(amqp, api, "--ca-file", filepath.Join(dir, "nowhere")), "--ca-file: open " + filepath.Join(dir, "nowhere")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, command := range []string{"plan", "process --until-empty"} {
				code, out := run(t, append(strings.Fields(command), append(tc.flags, "-f", file)...)...)
				if code != 1 || !strings.Contains(out, tc.text) || strings.Contains(out, "s3cr3t-word") {
					t.Errorf("%s exits with %d, without %q:\n%s", command, code, tc.text, out)
				}
			}
		})
	}
}

// A certificate that has expired is refused by every command that connects. With
// --insecure-skip-verify it is taken, and each time it is said loudly.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	authority := brokertest.NewAuthority(t)
	_, amqp, api := brokertest.NodeWithTLS(t, authority.Sign(t, -time.Hour, "127.0.0.1"), nil)
	file := filepath.Join(t.TempDir(), "topology.yaml")
	writeTo(t, file, "version: 1\nname: shop\ndefaults: {backoff: a}\nbackoff: {a: {tiers: [1s]}}\nqueues: [{name: q}]\n")
	for _, command := range []string{"plan", "apply --yes", "status", "process --until-empty", "migrate --yes"} {
		flags := secured(amqp, api, "-f", file)
		code, out := run(t, append(strings.Fields(command), append(flags, "--ca-file", authority.File)...)...)
		if code != 1 || !strings.Contains(out, "its certificate has expired or is not valid yet: renew it, or check the clock here") {
			t.Errorf("%s exits with %d:\n%s", command, code, out)
		}
		code, out = run(t, append(strings.Fields(command), append(flags, "--insecure-skip-verify")...)...)
		if code != 0 || strings.Count(out, insecure) != 1 {
			t.Errorf("%s unchecked exits with %d:\n%s", command, code, out)
		}
	}
}

func writeTo(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
