package broker

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
)

// secrets are the files of an endpoint whose content may change while dlxctl runs. All copies of
// the endpoint share them.
type secrets struct {
	log   *slog.Logger // nil: changes are not logged
	mu    sync.Mutex
	files []*secret
	// latest has the last content of each file that could be used.
	latest Endpoint
}

// secret is a file, or two that belong together.
type secret struct {
	flag    string // before the errors, for the user
	paths   []string
	content []string // of the paths, as it is in use. Nil: it was not read yet
	problem string   // the one that was logged last; empty if the files can be used
	// use checks the content and puts it into an endpoint. If it fails, the endpoint stays as it is.
	use func(e *Endpoint, s *secret, content []string) error
}

// secrets returns the files that c names. Their content is not read yet.
func (c Config) secrets() ([]*secret, error) {
	var out []*secret
	add := func(flag string, use func(*Endpoint, *secret, []string) error, paths ...string) {
		out = append(out, &secret{flag: flag, paths: paths, use: use})
	}
	if c.PasswordFile != "" {
		add("--password-file", usePassword, c.PasswordFile)
	}
	if c.CAFile != "" {
		add("--ca-file", useAuthorities, c.CAFile)
	}
	switch {
	case c.CertFile == "" && c.KeyFile == "":
	case c.KeyFile == "":
		return nil, errors.New("--cert-file needs --key-file, the key of that certificate")
	case c.CertFile == "":
		return nil, errors.New("--key-file needs --cert-file, the certificate of that key")
	default:
		add(fmt.Sprintf("--cert-file %s with --key-file %s", c.CertFile, c.KeyFile), usePair, c.CertFile, c.KeyFile)
	}
	return out, nil
}

// Renew returns e with what its files contain now: the password, the trusted authorities, and the
// certificate of the client with its key. It is called before each connection, so that dlxctl can
// go on when they are replaced.
//
// A file that is missing or incomplete, as during a write, is logged once; what was read of it
// before stays in use. What is not a regular file, such as a pipe, is never read again.
func (e Endpoint) Renew() Endpoint {
	if e.renew == nil {
		return e
	}
	return e.renew(e)
}

func (s *secrets) renew(e Endpoint) Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		s.read(f)
	}
	e.AMQP.password, e.API.password, e.TLS = s.latest.AMQP.password, s.latest.API.password, s.latest.TLS
	return e
}

func (s *secrets) read(f *secret) {
	if slices.ContainsFunc(f.paths, isSpecial) {
		return
	}
	changed, err := f.load(&s.latest)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	switch {
	case s.log == nil:
	case problem != "" && problem != f.problem:
		s.log.Warn("cannot use a changed file; its previous content stays in use", "files", f.paths, "error", err)
	case changed:
		s.log.Info("read a changed file", "files", f.paths)
	}
	f.problem = problem
}

// isSpecial reports whether path is something other than a regular file, such as a pipe, which can
// be read only once.
func isSpecial(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular()
}

// load reads f, and puts its content into e if it is new.
func (f *secret) load(e *Endpoint) (changed bool, err error) {
	var content []string
	for _, path := range f.paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return false, fmt.Errorf("%s: %w", f.flag, err)
		}
		content = append(content, string(data))
	}
	if slices.Equal(content, f.content) {
		return false, nil
	}
	if err := f.use(e, f, content); err != nil {
		return false, fmt.Errorf("%s: %w", f.flag, err)
	}
	f.content = content
	return true, nil
}

// usePassword takes a file that holds nothing but a password. One newline at its end does not
// belong to the password.
func usePassword(e *Endpoint, f *secret, content []string) error {
	password := strings.TrimSuffix(strings.TrimSuffix(content[0], "\n"), "\r")
	if password == "" {
		return fmt.Errorf("%s is empty", f.paths[0])
	}
	e.AMQP.password = password
	if !e.API.ownPassword {
		e.API.password = password
	}
	return nil
}

// useAuthorities takes a file of certificates in PEM.
func useAuthorities(e *Endpoint, f *secret, content []string) error {
	pool, rest := x509.NewCertPool(), []byte(content[0])
	found := pool.AppendCertsFromPEM(rest)
	for block, more := pem.Decode(rest); block != nil; block, more = pem.Decode(rest) {
		rest = more
	}
	switch {
	case bytes.Contains(rest, []byte("-----BEGIN")): // it is still being written
		return fmt.Errorf("%s ends within a certificate", f.paths[0])
	case !found:
		return fmt.Errorf("%s contains no PEM certificate", f.paths[0])
	}
	e.TLS = e.TLS.Clone()
	e.TLS.RootCAs = pool
	return nil
}

// usePair takes a certificate and its key, in PEM. A certificate with the key of another one is
// refused: one of the two files is still to be replaced.
func usePair(e *Endpoint, _ *secret, content []string) error {
	pair, err := tls.X509KeyPair([]byte(content[0]), []byte(content[1]))
	if err != nil {
		return err
	}
	e.TLS = e.TLS.Clone()
	e.TLS.Certificates = []tls.Certificate{pair}
	return nil
}
