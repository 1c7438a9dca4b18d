package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const insecure = "dlxctl: WARNING: TLS certificate verification is off (--insecure-skip-verify): an attacker on the network can read the password and every message\n"

// secured returns the flags for the TLS ports of a node.
func secured(amqp, api string, more ...string) []string {
	return append([]string{"--url", "amqps://guest:guest@" + amqp + "/", "--api", "https://" + api}, more...)
}

// With a node that requires client certificates, and whose own certificate is signed by a private
// authority, every command works with the right files over AMQP and HTTP, and names what is wrong
// with other files.
func TestMutualTLS(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	authority, otherAuthority := brokertest.NewAuthority(t), brokertest.NewAuthority(t)
	client, foreign := authority.Sign(t, time.Hour), otherAuthority.Sign(t, time.Hour)
	_, amqp, api := brokertest.NodeWithTLS(t, authority.Sign(t, time.Hour, "127.0.0.1", "broker.example"), &authority)
	dir := t.TempDir()
	file := writeTopology(t, `
version: 1
name: shop
defaults: {backoff: a}
backoff: {a: {tiers: [1s]}}
queues: [{name: q}, {name: new, replaces: old}]
`)
	password := filepath.Join(dir, "password")
	writeTo(t, password, "guest\n")
	files := slices.Clip([]string{
		"--ca-file", authority.File, "--cert-file", client.CertFile, "--key-file", client.KeyFile,
	})

	for _, command := range []string{
		"plan", "apply --yes", "plan --detailed-exitcode", "status", "process --until-empty", "migrate --yes",
		"migrate status", "apply --yes --wait",
	} {
		flags := secured(amqp, api, append(files, "-f", file)...)
		if code, out := run(append(strings.Fields(command), flags...)...); code != 0 {
			t.Errorf("%s exits with %d:\n%s", command, code, out)
		}
	}
	query := "?cacertfile=" + authority.File + "&certfile=" + client.CertFile + "&keyfile=" + client.KeyFile
	local := func(address string) string { return strings.Replace(address, "127.0.0.1", "localhost", 1) }
	to := func(amqpURL, api string, more ...string) []string {
		return append([]string{"--url", amqpURL, "--api", "https://" + api}, more...)
	}
	for name, flags := range map[string][]string{
		"files in the query": to("amqps://guest:guest@"+amqp+"/"+query, api),
		"another name": append(files,
			to("amqps://guest:guest@"+local(amqp)+"/?server_name_indication=broker.example", local(api))...),
		"a password in a file": append(files,
			to("amqps://guest:wrong@"+amqp+"/", api, "--password-file", password)...),
	} {
		for _, command := range []string{"plan", "process --until-empty"} {
			if code, out := run(append(strings.Fields(command), append(flags, "-f", file)...)...); code != 0 {
				t.Errorf("%s: %s exits with %d:\n%s", name, command, code, out)
			}
		}
	}

	for name, tc := range map[string]struct {
		flags []string
		text  string
	}{
		"no authority": {
			flags: secured(amqp, api, files[2:]...),
			text: "its certificate is signed by an authority that this machine does not trust; " +
				"pass the authority's certificate with --ca-file",
		},
		"another authority": {
			flags: secured(amqp, api, append(files[2:], "--ca-file", otherAuthority.File)...),
			text: "its certificate is signed by an authority that this machine does not trust; " +
				"pass the authority's certificate with --ca-file",
		},
		"no certificate": {
			flags: secured(amqp, api, files[:2]...),
			text:  "if it requires a client certificate, pass one that it trusts with --cert-file and --key-file",
		},
		"a certificate of another authority": {
			flags: secured(amqp, api, "--ca-file", authority.File,
				"--cert-file", foreign.CertFile, "--key-file", foreign.KeyFile),
			text: "it ended the TLS handshake",
		},
		"another host": {
			flags: append(files, to("amqps://guest:guest@"+local(amqp)+"/", local(api))...),
			text: "its certificate is for another host; use a host name that the certificate contains, " +
				"or add ?server_name_indication=NAME to its URL",
		},
		"a wrong password": {
			flags: append(files, to("amqps://guest:s3cr3t-word@"+amqp+"/", api)...),
			text:  `user "guest" is refused by`,
		},
		"http to a TLS port": {
			flags: append(files, "--url", "amqp://guest:guest@"+amqp+"/", "--api", "http://"+api),
			text:  "127.0.0.1",
		},
		"a key without a certificate": {
			flags: secured(amqp, api, "--key-file", client.KeyFile),
			text:  "--key-file needs --cert-file, the certificate of that key",
		},
		"a key of another certificate": {
			flags: secured(amqp, api, "--cert-file", client.CertFile, "--key-file", foreign.KeyFile),
			text:  "private key does not match public key",
		},
		"a file that does not exist": {
			flags: secured(amqp, api, "--ca-file", filepath.Join(dir, "nowhere")),
			text:  "--ca-file: open " + filepath.Join(dir, "nowhere"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, command := range []string{"plan", "process --until-empty"} {
				code, out := run(append(strings.Fields(command), append(tc.flags, "-f", file)...)...)
				if code != 1 || !strings.Contains(out, tc.text) || strings.Contains(out, "s3cr3t-word") {
					t.Errorf("%s exits with %d, without %q:\n%s", command, code, tc.text, out)
				}
			}
		})
	}
}

// Every command that connects refuses a certificate that has expired. With --insecure-skip-verify
// it accepts the certificate and prints a warning each time.
func TestExpiredCertificate(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	authority := brokertest.NewAuthority(t)
	_, amqp, api := brokertest.NodeWithTLS(t, authority.Sign(t, -time.Hour, "127.0.0.1"), nil)
	file := writeTopology(t,
		"version: 1\nname: shop\ndefaults: {backoff: a}\nbackoff: {a: {tiers: [1s]}}\nqueues: [{name: q}]\n")
	for _, command := range []string{"plan", "apply --yes", "status", "process --until-empty", "migrate --yes"} {
		flags := secured(amqp, api, "-f", file)
		code, out := run(append(strings.Fields(command), append(flags, "--ca-file", authority.File)...)...)
		if code != 1 || !strings.Contains(out,
			"its certificate has expired or is not valid yet; renew it, or check the clock of this machine") {
			t.Errorf("%s exits with %d:\n%s", command, code, out)
		}
		code, out = run(append(strings.Fields(command), append(flags, "--insecure-skip-verify")...)...)
		if code != 0 || strings.Count(out, insecure) != 1 {
			t.Errorf("%s unchecked exits with %d:\n%s", command, code, out)
		}
	}
}

// A processor and a client of the management API that run while password, authority, certificate
// and key are replaced on disk go on with the new ones: they read the files at each new connection.
func TestReplacedSecrets(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	authority, next := brokertest.NewAuthority(t), brokertest.NewAuthority(t)
	server, client := authority.Sign(t, time.Hour, "127.0.0.1"), authority.Sign(t, time.Hour)
	node, amqp, api := brokertest.NodeWithTLS(t, server, &authority)
	user := node.Target().Tool(t)
	password, ca := filepath.Join(t.TempDir(), "password"), filepath.Join(t.TempDir(), "ca.pem")
	writeTo(t, password, user.Password+"\n")
	copyTo(t, ca, authority.File)
	config := broker.Config{
		URL: "amqps://" + user.Username + "@" + amqp + "/", API: "https://" + api,
		PasswordFile: password, CAFile: ca, CertFile: client.CertFile, KeyFile: client.KeyFile,
	}
	endpoint, err := config.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	overHTTP, err := management.New(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer overHTTP.Close()
	flags := []string{
		"--url", config.URL, "--api", config.API, "--password-file", password, "--ca-file", ca,
		"--cert-file", client.CertFile, "--key-file", client.KeyFile, "-f", writeTopology(t,
			"version: 1\nname: shop\ndefaults: {backoff: a}\nbackoff: {a: {tiers: [1s]}}\nqueues: [{name: q}]\n"),
	}
	start(t, user, append([]string{"apply", "--yes"}, flags...)...).exits(t, 0)
	p := start(t, user, append([]string{"process", "--listen", "127.0.0.1:0"}, flags...)...)
	works := func(changed string) {
		t.Helper()
		node.Ctl(t, "close_all_user_connections", user.Username, "test")
		if changed != "" {
			p.logs(t, `msg="read a changed file" files=`+changed)
		}
		p.answers(t, "/readyz")
		if _, err := overHTTP.Inspect(t.Context()); err != nil {
			t.Errorf("over HTTP, %q was replaced: %v", changed, err)
		}
	}
	p.answers(t, "/readyz")
	works("")

	node.Ctl(t, "change_password", user.Username, "another")
	writeTo(t, password, "another\n")
	works("[" + password)

	copyTo(t, ca, next.File)
	copyTo(t, authority.File, next.File) // the broker's, for certificates of clients
	for to, from := range map[brokertest.Pair]brokertest.Pair{
		server: next.Sign(t, time.Hour, "127.0.0.1"), client: next.Sign(t, time.Hour),
	} {
		copyTo(t, to.CertFile, from.CertFile)
		copyTo(t, to.KeyFile, from.KeyFile)
	}
	node.Eval(t, "ssl:clear_pem_cache().") // by itself it forgets the files after two minutes
	works("[" + ca)
	p.logs(t, `msg="read a changed file" files="[`+client.CertFile)
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// copyTo copies the content of another file into a file.
func copyTo(t *testing.T, file, from string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	writeTo(t, file, string(content))
}
