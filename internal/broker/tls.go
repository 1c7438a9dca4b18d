package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
)

// TLSProblem returns the text for an error of TLS. It is empty for any other error.
func TLSProblem(err error) string {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	var op *net.OpError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is signed by an authority that this machine does not trust; pass the authority's certificate with --ca-file"
	case errors.As(err, &host):
		return "its certificate is for another host; use a host name that the certificate contains, or add ?server_name_indication=NAME to its URL"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired or is not valid yet; renew it, or check the clock of this machine"
	case errors.As(err, &invalid):
		return "its certificate is not valid: " + OneLine(invalid.Error())
	case errors.As(err, &alert), errors.As(err, &op) && op.Op == "remote error":
		return handshakeEnds(RootCause(err).Error())
	}
	// With TLS 1.3 the server checks the client's certificate after the client has finished the
	// handshake. Then the AMQP library reads the alert, and keeps only its text.
	if _, said, ok := strings.Cut(err.Error(), "remote error: tls: "); ok {
		return handshakeEnds("tls: " + strings.TrimRight(said, `"`))
	}
	return ""
}

// CertificateHint is what to do if a server may have ended a TLS connection because of the client's
// certificate.
const CertificateHint = "if it requires a client certificate, pass one that it trusts with --cert-file and --key-file"

func handshakeEnds(why string) string {
	return "it ended the TLS handshake (" + OneLine(why) + "); " + CertificateHint
}

// RootCause returns the innermost cause: the errors around it name operations and addresses that do
// not help the user.
func RootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
