package management

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/text"
)

// statusError is an answer of the management API other than success.
type statusError struct {
	status int
	// code and reason are the broker's. Both are empty if the answer is not in the form of
	// RabbitMQ's errors.
	code, reason string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.status, http.StatusText(e.status), e.reason)
}

// Only the reason distinguishes the broker's cases of 401. These are the reasons of 3.10 to 4.3.
const (
	reasonLogin    = "Login failed"   // 3.x
	reasonLogin4   = "Not_Authorized" // 4.x
	reasonNoTag    = "Not management user"
	reasonNoVHost  = "User not authorised to access virtual host"
	reasonNoObject = "User not authorised to access object" // a policy
	reasonAccess   = "Access refused"                       // a queue, exchange or binding
	codeNoObject   = "Object Not Found"                     // 404 for a virtual host, not for the end of a binding
	// with another code: since 4.3, for a virtual host that the user may not see
	reasonNothing = "Not Found"
)

// failed turns any error of a request into an error for the user. Those of net/http are not shown
// as they are: they are long, and quote URLs.
func (m *Client) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if status, ok := errors.AsType[*statusError](err); ok {
		return m.explain(status)
	}
	return m.explainNetwork(err)
}

func (m *Client) explainNetwork(err error) error {
	if text := broker.TLSProblem(err); text != "" {
		return broker.Errorf(broker.ErrUnreachable, "%s: %s", m.api, text)
	}
	var dns *net.DNSError
	var timeout net.Error
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, errSlow):
		return broker.Errorf(broker.ErrUnreachable,
			"%s took the request, and has not answered it within %s: the broker is slow; run it again with a longer --timeout",
			m.api, text.Duration(m.timeout))
	case errors.As(err, &dns):
		return broker.Errorf(broker.ErrUnreachable, "host %q is unknown; check it in %s", dns.Name, m.endpoint.Words.Either())
	case errors.Is(err, syscall.ECONNREFUSED):
		return broker.Errorf(broker.ErrUnreachable,
			"nothing listens at %s; check that the broker is running with the management plugin (rabbitmq-plugins enable rabbitmq_management), or set its URL with %s",
			m.api, m.endpoint.Words.API())
	case errors.As(err, &timeout) && timeout.Timeout():
		return broker.Errorf(broker.ErrUnreachable,
			"%s does not answer in time; check host and port in %s, and the network in between", m.api, m.endpoint.Words.Either())
	case errors.As(err, &record):
		return broker.Errorf(broker.ErrUnreachable, "%s does not speak TLS; use http:// in %s", m.api, m.endpoint.Words.API())
	case strings.Contains(err.Error(), "malformed HTTP"), passing(err) && m.api.Scheme == broker.SchemeHTTP:
		return broker.Errorf(broker.ErrUnreachable,
			"what answers at %s does not speak HTTP; set the URL of the management API with %s (https:// if it uses TLS, port usually 15672 or 15671)",
			m.api, m.endpoint.Words.API())
	default:
		return broker.Errorf(broker.ErrUnreachable, "%s cannot be reached: %s", m.api,
			broker.OneLine(broker.RootCause(err).Error()))
	}
}

// isGone reports whether an object that was asked for is not there. RabbitMQ gives the same answer
// for a queue that does not exist as for a virtual host.
func isGone(err error) bool {
	return errors.Is(err, broker.ErrNotFound) || errors.Is(err, broker.ErrNoVHost)
}

// failedToDeclare matches the reasons of a broker that accepts a declaration and fails to carry it
// out. AMQP has the code 541 for them, and the management API answers 400, as to a wrong request
// (source: rabbit_quorum_queue, rabbit_classic_queue, rabbit_stream_queue; 3.10 to 4.3). The last
// one is that of a process of the broker which has crashed meanwhile (rabbit_mgmt_util; seen on
// 3.10.8).
var failedToDeclare = regexp.MustCompile(
	`^(Cannot declare .* on node '|Could not declare .* timed out|Request to node .* failed with )`)

// explain turns an answer of the broker into an error for the user.
func (m *Client) explain(e *statusError) error {
	switch {
	case e.status == http.StatusUnauthorized || e.status == http.StatusForbidden:
		return m.explainDenied(e)
	case e.status >= http.StatusInternalServerError:
		return broker.Errorf(broker.ErrUnreachable, "%s", strings.TrimSuffix(fmt.Sprintf("%s answers %d %s: %s",
			m.api, e.status, http.StatusText(e.status), e.reason), ": "))
	case e.code == "" && e.reason == "":
		return m.notRabbitMQ(fmt.Sprintf("it answers %d %s", e.status, http.StatusText(e.status)))
	case e.status == http.StatusNotFound && e.code == codeNoObject:
		return broker.Errorf(broker.ErrNoVHost, "vhost %q does not exist on %s; run rabbitmqctl add_vhost %s", m.vhost, m.api,
			text.ShellQuote(m.vhost))
	case e.status == http.StatusNotFound && e.reason == reasonNothing:
		return broker.Errorf(broker.ErrForbidden,
			"user %q has no permissions on vhost %q, or the vhost does not exist on %s; %s", m.api.User, m.vhost, m.api,
			m.setPermissions())
	case e.status == http.StatusNotFound:
		return broker.Errorf(broker.ErrNotFound, "%s", e.reason)
	case failedToDeclare.MatchString(e.reason):
		return broker.Errorf(broker.ErrInternal, "the broker failed: %s", e.reason)
	case strings.HasPrefix(e.reason, broker.ReasonInequivalent):
		return broker.Errorf(broker.ErrInequivalent, "it exists and differs: %s", e.reason)
	default:
		return broker.Errorf(broker.ErrRefused, "the broker refuses it: %s", e.reason)
	}
}

func (m *Client) explainDenied(e *statusError) error {
	user := m.api.User
	switch {
	case e.reason == reasonNoTag:
		return broker.Errorf(broker.ErrForbidden,
			"user %q lacks the tag management on %s; run rabbitmqctl set_user_tags %s management",
			user, m.api, text.ShellQuote(user))
	case e.reason == reasonNoVHost:
		return broker.Errorf(broker.ErrForbidden, "user %q has no permissions on vhost %q; %s", user, m.vhost,
			m.setPermissions())
	case e.reason == reasonNoObject:
		return broker.Errorf(broker.ErrForbidden,
			"user %q may not change policies; run rabbitmqctl set_user_tags %s policymaker with its other tags, which the command replaces", user, text.ShellQuote(user))
	case strings.HasPrefix(e.reason, reasonAccess):
		return broker.Errorf(broker.ErrForbidden,
			"user %q lacks a permission (configure, write or read) for this in vhost %q; %s",
			user, m.vhost, broker.GrantHint(user))
	}
	said := ""
	if e.reason != "" && e.reason != reasonLogin && e.reason != reasonLogin4 {
		said = ", " + e.reason
	}
	return broker.Errorf(broker.ErrUnauthorized,
		"user %q is refused by %s (%d%s); check user and password in %s%s",
		user, m.api, e.status, said, m.endpoint.Words.Either(), m.endpoint.Words.OrPassword())
}

// setPermissions returns how the user gets permissions. Any permissions, even empty ones, let the
// user see the virtual host.
func (m *Client) setPermissions() string {
	return fmt.Sprintf("%s, or for plan only: rabbitmqctl set_permissions -p %s %s '^$' '^$' '^$'",
		broker.GrantHint(m.api.User), text.ShellQuote(m.vhost), text.ShellQuote(m.api.User))
}

// notRabbitMQ is the error for an address at which something other than RabbitMQ answers.
func (m *Client) notRabbitMQ(what string) error {
	return broker.Errorf(broker.ErrUnreachable,
		"what answers at %s is not RabbitMQ's management API (%s); set its URL with %s", m.api, what,
		m.endpoint.Words.API())
}
