package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/dlxctl/dlxctl/internal/notice"
)

// longestSubject is how many bytes of a text the subject of a mail has.
const longestSubject = 150

// mailbox sends notices as mails to one mailbox: see [Target.apart].
type mailbox struct{ Target }

func (mailbox) close() {}

func (m mailbox) send(ctx context.Context, batch []Notice, missed int64) error {
	body := m.summary(batch, missed, nil)
	subject, _, _ := strings.Cut(body, "\n")
	if len(batch) > 1 {
		subject = fmt.Sprintf("[%s] %d notices, the first: %s", batch[0].Topology, len(batch), subject)
	}
	return m.mail(ctx, subject, body)
}

// mail sends one mail. What a message brought in is in the subject and the body only: the subject
// is one line, which the library encodes, so that no text becomes a header.
func (m mailbox) mail(ctx context.Context, subject, body string) error {
	msg := mail.NewMsg()
	if err := errors.Join(msg.From(m.From), msg.To(m.To...)); err != nil {
		return err
	}
	msg.Subject(notice.First(notice.Plain(subject), longestSubject))
	msg.SetBodyString(mail.TypeTextPlain, body+"\n")
	msg.SetDate()
	msg.SetMessageID()
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no mailbox answers it
	client, err := m.client(ctx)
	if err != nil {
		return m.withoutSecret(err)
	}
	return m.withoutSecret(client.DialAndSendWithContext(ctx, msg))
}

// client returns a client of the server. A password goes over TLS, or to this machine.
func (m mailbox) client(ctx context.Context) (*mail.Client, error) {
	options := []mail.Option{
		mail.WithPort(m.Port), mail.WithTimeout(sendTimeout),
		mail.WithDialContextFunc(func(dialing context.Context, network, address string) (net.Conn, error) {
			conn, err := m.dial(dialing, network, address)
			if err == nil { // the library waits for answers without a context
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		}),
	}
	here := m.Host == "localhost" || net.ParseIP(m.Host).IsLoopback()
	switch {
	case m.TLS:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS)) // dial has begun it
	case m.User != "" && !here:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	default:
		// An attacker who can show a certificate of his own can as well offer no TLS. Mail servers as
		// Debian installs them have a certificate that no one trusts.
		options = append(options, mail.WithTLSPolicy(mail.TLSOpportunistic), mail.WithTLSConfig(
			&tls.Config{ServerName: m.Host, InsecureSkipVerify: true})) //nolint:gosec // as said
	}
	if m.User != "" { // the library sends a password only over TLS, or to this machine
		options = append(options, mail.WithUsername(m.User), mail.WithPassword(m.Password),
			mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthPlain, mail.SMTPAuthLogin))
	}
	return mail.NewClient(m.Host, options...)
}

// dial connects to the server.
func (m mailbox) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if m.TLS {
		return (&tls.Dialer{}).DialContext(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// withoutSecret returns an error without the password, and says whether it is for good.
func (m mailbox) withoutSecret(err error) error {
	if err == nil {
		return nil
	}
	said := err.Error()
	if m.Password != "" {
		said = strings.ReplaceAll(said, m.Password, "***")
	}
	said = notice.Plain(said)
	answer, answered := errors.AsType[*textproto.Error](err)
	failed, refused := errors.AsType[*mail.SendError](err)
	if answered && answer.Code >= 500 || refused && failed.ErrorCode() >= 500 { // RFC 5321: for good
		return &refusedError{answer: said, forGood: true}
	}
	return errors.New(said)
}
