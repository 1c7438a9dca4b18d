package brokertest

import (
	"net/url"
	"strings"
	"testing"

	amqp10 "github.com/Azure/go-amqp"
)

// Session10 returns a session over AMQP 1.0, which ends with the test.
func (t Target) Session10(tb testing.TB) *amqp10.Session {
	tb.Helper()
	u, err := url.Parse(t.URL)
	if err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
	password, _ := u.User.Password()
	conn, err := amqp10.Dial(tb.Context(), "amqp://"+u.Host, &amqp10.ConnOptions{
		SASLType: amqp10.SASLTypePlain(u.User.Username(), password), HostName: "vhost:" + strings.TrimPrefix(u.Path, "/"),
	})
	if err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
	tb.Cleanup(func() { _ = conn.Close() }) // what is not settled stays in its queue
	session, err := conn.NewSession(tb.Context(), nil)
	if err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
	return session
}
