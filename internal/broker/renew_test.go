package broker_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// replace writes a new content into a file.
func replace(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newPair returns a certificate, which is also that of an authority, and its key, in PEM.
func newPair(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}

// Renew takes what the files have now, and keeps what it had of a file that is gone or half
// written. It logs each change and each problem once, without the password.
func TestRenewReadsTheFilesAgain(t *testing.T) {
	t.Parallel()
	cert, key := newPair(t)
	nextCert, nextKey := newPair(t)
	password, ca, certFile, keyFile := write(t, "first\n"), write(t, cert), write(t, cert), write(t, key)
	var log bytes.Buffer
	e, err := broker.Config{
		URL: "amqps://u:p@h/", PasswordFile: password, CAFile: ca, CertFile: certFile, KeyFile: keyFile,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	e.VHost = "kept"
	certificate := func(e broker.Endpoint) string { return string(e.TLS.Certificates[0].Certificate[0]) }
	wants := func(step string, password string, sameCA, samePair bool, lines ...string) {
		t.Helper()
		log.Reset()
		for range 3 {
			if now := e.Renew(); now.AMQP.Password() != password || now.API.Password() != password || now.VHost != "kept" ||
				now.TLS.RootCAs.Equal(e.TLS.RootCAs) != sameCA || (certificate(now) == certificate(e)) != samePair {
				t.Errorf("%s: passwords %q and %q, want %q; the same authorities: %t, the same certificate: %t", step,
					now.AMQP.Password(), now.API.Password(), password, now.TLS.RootCAs.Equal(e.TLS.RootCAs),
					certificate(now) == certificate(e))
			}
		}
		if got := log.String(); strings.Count(got, "\n") != len(lines) || strings.Contains(got, "first") ||
			strings.Contains(got, "second") {
			t.Errorf("%s: the log is not %q:\n%s", step, lines, got)
		}
		for _, line := range lines {
			if !strings.Contains(log.String(), line) {
				t.Errorf("%s: the log has no %q:\n%s", step, line, log.String())
			}
		}
	}
	before := e.Renew().TLS
	wants("nothing has changed", "first", true, true)
	if e.Renew().TLS != before { // the management API would open new connections
		t.Error("the TLS settings are others, though nothing has changed")
	}

	replace(t, password, "")
	replace(t, ca, cert+nextCert[:200])
	replace(t, certFile, nextCert)
	wants("half written", "first", true, true, password+" is empty", ca+" ends within a certificate",
		"private key does not match public key")
	if err := os.Remove(password); err != nil {
		t.Fatal(err)
	}
	wants("gone", "first", true, true, "--password-file: open "+password)

	replace(t, password, "second\n")
	replace(t, ca, nextCert)
	replace(t, keyFile, nextKey)
	changed := `msg="read a changed file" files=`
	wants("replaced", "second", false, false, changed+"["+password, changed+"["+ca, changed+`"[`+certFile)
	if e.TLS.RootCAs.Equal(e.Renew().TLS.RootCAs) || len(e.Renew().TLS.Certificates) != 1 {
		t.Error("the new authority was added to the previous one")
	}
}

// The password of a management API whose URL has one stays.
func TestRenewKeepsThePasswordOfTheAPI(t *testing.T) {
	t.Parallel()
	password := write(t, "first")
	e, err := broker.Config{API: "http://a:own@h:15672", PasswordFile: password}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	replace(t, password, "second")
	if e = e.Renew(); e.AMQP.Password() != "second" || e.API.Password() != "own" {
		t.Errorf("passwords %q and %q, want second and own", e.AMQP.Password(), e.API.Password())
	}
}

// A pipe can be read only once: Renew does not wait for it.
func TestRenewDoesNotReadAPipeAgain(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(pipe, []byte("first"), 0o600) }() // ends once it is read
	e, err := broker.Config{PasswordFile: pipe}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if e = e.Renew(); e.AMQP.Password() != "first" {
		t.Errorf("the password is %q, want first", e.AMQP.Password())
	}
}

// An endpoint without files, and one that Resolve did not make, stay as they are.
func TestRenewWithoutFiles(t *testing.T) {
	t.Parallel()
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if e := (broker.Endpoint{TLS: conf}).Renew(); e.TLS != conf {
		t.Error("the TLS settings are others")
	}
}
