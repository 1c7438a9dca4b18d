package broker_test

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/broker"
)

const secret = "s3cr3t-word"

// door is an address with its password, for comparison.
type door struct{ URL, User, Password string }

func doorOf(a broker.Address) door { return door{a.String(), a.User, a.Password()} }

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate returns the certificate of a test server, in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func TestResolve(t *testing.T) {
	t.Parallel()
	guest := func(url string) door { return door{url, "guest", "guest"} }
	for name, tc := range map[string]struct {
		config    broker.Config
		amqp, api door
		vhost     string
	}{
		"nothing": {
			broker.Config{}, guest("amqp://localhost:5672"), guest("http://localhost:15672"), "/",
		},
		"a host": {
			broker.Config{URL: "amqp://h"}, guest("amqp://h:5672"), guest("http://h:15672"), "/",
		},
		"a scheme alone": {
			broker.Config{URL: "amqp://"}, guest("amqp://localhost:5672"), guest("http://localhost:15672"), "/",
		},
		"no host but a vhost": {
			broker.Config{URL: "amqp:///v"}, guest("amqp://localhost:5672"), guest("http://localhost:15672"), "v",
		},
		"amqps": {
			broker.Config{URL: "AMQPS://h"}, guest("amqps://h:5671"), guest("https://h:15671"), "/",
		},
		"an address of version 6": {
			broker.Config{URL: "amqp://[::1]:1234/v"}, guest("amqp://[::1]:1234"), guest("http://[::1]:15672"), "v",
		},
		"a vhost that is a slash": {
			broker.Config{URL: "amqp://h/%2F"}, guest("amqp://h:5672"), guest("http://h:15672"), "/",
		},
		"a vhost that is two slashes": {
			broker.Config{URL: "amqp://h/%2F%2F"}, guest("amqp://h:5672"), guest("http://h:15672"), "//",
		},
		"a vhost in percent code": {
			broker.Config{URL: "amqp://h/a%2Fb%20%C3%BC%25"}, guest("amqp://h:5672"), guest("http://h:15672"), "a/b ü%",
		},
		"a vhost that beats the URL's": {
			broker.Config{URL: "amqp://h/v", VHost: "w%2F"}, guest("amqp://h:5672"), guest("http://h:15672"), "w%2F",
		},
		"credentials in percent code": {
			broker.Config{URL: "amqp://us%2Fer:p%40ss%3A%2F%23%3F@h/"},
			door{"amqp://h:5672", "us/er", "p@ss:/#?"},
			door{"http://h:15672", "us/er", "p@ss:/#?"},
			"/",
		},
		"a password with an @ as it is": {
			broker.Config{URL: "amqp://u:p@ss@h/"},
			door{"amqp://h:5672", "u", "p@ss"},
			door{"http://h:15672", "u", "p@ss"},
			"/",
		},
		"a user without password": {
			broker.Config{URL: "amqp://u@h/"}, door{"amqp://h:5672", "u", ""}, door{"http://h:15672", "u", ""}, "/",
		},
		"an API on another host": {
			broker.Config{URL: "amqp://u:p@h/", API: "https://proxy"},
			door{"amqp://h:5672", "u", "p"},
			door{"https://proxy:443", "u", "p"},
			"/",
		},
		"an API with credentials of its own": {
			broker.Config{URL: "amqp://u:p@h/", API: "http://a:b@h:8080/"},
			door{"amqp://h:5672", "u", "p"},
			door{"http://h:8080", "a", "b"},
			"/",
		},
		"an API behind a path, pasted with what follows": {
			broker.Config{API: "http://h/rabbit%20mq/api/"},
			guest("amqp://localhost:5672"),
			guest("http://h:80/rabbit%20mq"),
			"/",
		},
		"a query that means something to other clients": {
			broker.Config{URL: "amqp://h/v?connection_timeout=1000&x=y"}, guest("amqp://h:5672"), guest("http://h:15672"), "v",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := tc.config.Resolve()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]any{tc.amqp, tc.api, tc.vhost}, []any{doorOf(e.AMQP), doorOf(e.API), e.VHost}); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestThePasswordFileOverridesTheURL(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ content, password string }{
		"with a newline":            {"from file\n", "from file"},
		"without one":               {"from file", "from file"},
		"with one of Windows":       {"from file\r\n", "from file"},
		"spaces and more belong to": {" from\nfile \n\n", " from\nfile \n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := broker.Config{URL: "amqp://u:p@h/", PasswordFile: write(t, tc.content)}.Resolve()
			if err != nil {
				t.Fatal(err)
			}
			if e.AMQP.Password() != tc.password || e.API.Password() != tc.password {
				t.Errorf("passwords %q and %q, want %q", e.AMQP.Password(), e.API.Password(), tc.password)
			}
		})
	}
}

func TestQueryParametersOfTheURL(t *testing.T) {
	t.Parallel()
	ca := write(t, certificate(t))
	e, err := broker.Config{URL: "amqps://h/?heartbeat=7&server_name_indication=other&cacertfile=" + ca}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if e.Heartbeat != 7*time.Second || e.AMQP.ServerName != "other" ||
		e.API.ServerName != "other" || e.TLS.RootCAs == nil {
		t.Errorf("heartbeat %s, server name %q, authorities %v", e.Heartbeat, e.AMQP.ServerName, e.TLS.RootCAs)
	}
}

func TestResolveExplainsErrors(t *testing.T) {
	t.Parallel()
	empty := write(t, "\n")
	notPEM := write(t, "no certificate")
	missing := filepath.Join(t.TempDir(), "none")
	const unreadable = "the AMQP URL (RABBITMQ_URL or --url) cannot be parsed; percent-encode special characters in user, password and virtual host, such as %2F for /, %40 for @ and %23 for #"
	for name, tc := range map[string]struct {
		config broker.Config
		text   string
	}{
		"another scheme": {
			broker.Config{URL: "http://u:s3cr3t-word@h/"},
			"the AMQP URL (RABBITMQ_URL or --url) begins with http://; it must be amqp:// or amqps://",
		},
		"no scheme": {
			broker.Config{URL: "u:s3cr3t-word@h/"},
			"the AMQP URL (RABBITMQ_URL or --url) does not begin with amqp:// or amqps://",
		},
		"an API of another scheme": {
			broker.Config{API: "amqp://u:s3cr3t-word@h/"},
			"the URL of the management API (RABBITMQ_API_URL or --api) begins with amqp://; it must be http:// or https://",
		},
		"an API without scheme": {
			broker.Config{API: "h:15672"},
			"the URL of the management API (RABBITMQ_API_URL or --api) does not begin with http:// or https://",
		},
		"a password with a space and broken code":   {broker.Config{URL: "amqp://u:s3cr3t-word%zz@h/"}, unreadable},
		"a password with a slash":                   {broker.Config{URL: "amqp://u:s3cr3t-word/2@h/"}, unreadable},
		"a password of digits with a slash":         {broker.Config{URL: "amqp://u:123/s3cr3t-word@h/"}, unreadable},
		"a password of digits with a question mark": {broker.Config{URL: "amqp://u:123?s3cr3t-word@h/"}, unreadable},
		"a password of digits with a number sign":   {broker.Config{URL: "amqp://u:123#s3cr3t-word@h/"}, unreadable},
		"a password with a newline":                 {broker.Config{URL: "amqp://u:s3cr3t-word\n@h/"}, unreadable},
		"a vhost with a number sign":                {broker.Config{URL: "amqp://u:s3cr3t-word@h/a#b"}, unreadable},
		"a port that is none": {
			broker.Config{URL: "amqp://u:s3cr3t-word@h:65536/"},
			"the AMQP URL (RABBITMQ_URL or --url) has a port that is not a number from 1 to 65535",
		},
		"a mechanism without a password": {
			broker.Config{URL: "amqps://h/?auth_mechanism=external"},
			"the AMQP URL (RABBITMQ_URL or --url) asks for an auth_mechanism other than plain, such as external: dlxctl logs in with a user and a password only; remove auth_mechanism, and give the URL a user (--password-file can hold its password)",
		},
		"a heartbeat that is none": {
			broker.Config{URL: "amqp://h/?heartbeat=10s"},
			"the AMQP URL (RABBITMQ_URL or --url) has a heartbeat that is not a whole number of seconds from 0 to 65535",
		},
		"a password file that is not there": {
			broker.Config{PasswordFile: missing}, "--password-file: open " + missing + ": no such file or directory",
		},
		"a password file without a password": {
			broker.Config{PasswordFile: empty}, "--password-file: " + empty + " is empty",
		},
		"authorities that are not there": {
			broker.Config{CAFile: missing}, "--ca-file: open " + missing + ": no such file or directory",
		},
		"authorities that are not PEM": {
			broker.Config{CAFile: notPEM}, "--ca-file: " + notPEM + " contains no PEM certificate",
		},
		"a certificate without its key": {
			broker.Config{CertFile: notPEM}, "--cert-file needs --key-file, the key of that certificate",
		},
		"a key without its certificate": {
			broker.Config{KeyFile: notPEM}, "--key-file needs --cert-file, the certificate of that key",
		},
		"a certificate that is none": {
			broker.Config{CertFile: notPEM, KeyFile: notPEM},
			"--cert-file " + notPEM + " with --key-file " + notPEM + ": tls: failed to find any PEM data in certificate input",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.config.Resolve()
			if err == nil {
				t.Fatal("no error")
			}
			if err.Error() != tc.text {
				t.Errorf("error\n got %s\nwant %s", err, tc.text)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("error holds the password: %s", err)
			}
		})
	}
}

func TestAnEndpointNeverPrintsItsPassword(t *testing.T) {
	t.Parallel()
	e, err := broker.Config{URL: "amqp://u:" + secret + "@h/"}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, v := range []any{e, &e, e.AMQP, e.API} {
			if text := fmt.Sprintf(format, v); strings.Contains(text, secret) {
				t.Errorf("%s of a %T prints the password: %s", format, v, text)
			}
		}
	}
}
