package broker

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
)

// What can be wrong between us and the broker. The errors that wrap these are
// one line which names the remedy, and hold no password.
var (
	// ErrUnreachable: nothing answers, or not as a broker does.
	ErrUnreachable = errors.New("the broker cannot be reached")
	// ErrUnauthorized: user or password are wrong.
	ErrUnauthorized = errors.New("user or password are refused")
	// ErrForbidden: the user lacks a tag or a permission.
	ErrForbidden = errors.New("not allowed")
	// ErrNoVHost: the virtual host does not exist.
	ErrNoVHost = errors.New("no such vhost")
	// ErrNotFound: an object that another one needs does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInequivalent: a queue or exchange of that name exists and differs.
	ErrInequivalent = errors.New("exists with other arguments")
	// ErrRefused: the broker takes what was asked of it for wrong.
	ErrRefused = errors.New("refused by the broker")
)

// toldError is an error in words for the user. It is also one of the errors
// above.
type toldError struct {
	kind error
	text string
}

func (e *toldError) Error() string { return e.text }

func (e *toldError) Unwrap() error { return e.kind }

func tell(kind error, format string, args ...any) error {
	return &toldError{kind: kind, text: fmt.Sprintf(format, args...)}
}

// statusError is an answer of the management API other than success.
type statusError struct {
	status int
	// code and reason are the broker's. Both are empty if the answer is not in
	// the form that RabbitMQ gives its errors.
	code, reason string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.status, http.StatusText(e.status), e.reason)
}

// The broker tells the cases of 401 apart by their reason alone. These are the
// reasons of 3.10 to 4.3.
const (
	reasonLogin    = "Login failed"   // 3.x
	reasonLogin4   = "Not_Authorized" // 4.x
	reasonNoTag    = "Not management user"
	reasonNoVHost  = "User not authorised to access virtual host"
	reasonNoObject = "User not authorised to access object" // a policy
	reasonAccess   = "Access refused"                       // a queue, exchange or binding
	reasonInequal  = "inequivalent arg"
	codeNoObject   = "Object Not Found" // 404 for a virtual host, not for the end of a binding
	reasonNothing  = "Not Found"        // with another code: since 4.3, for a virtual host that the user may not see
)

// explain turns what the broker answered into words.
func (m *Management) explain(e *statusError) error {
	switch {
	case e.status == http.StatusUnauthorized || e.status == http.StatusForbidden:
		return m.explainDenied(e)
	case e.status >= http.StatusInternalServerError:
		return tell(ErrUnreachable, "%s", strings.TrimSuffix(fmt.Sprintf("%s answers %d %s: %s",
			m.api, e.status, http.StatusText(e.status), e.reason), ": "))
	case e.code == "" && e.reason == "":
		return m.notRabbitMQ(fmt.Sprintf("it answers %d %s", e.status, http.StatusText(e.status)))
	case e.status == http.StatusNotFound && e.code == codeNoObject:
		return tell(ErrNoVHost, "vhost %q does not exist on %s: rabbitmqctl add_vhost %s", m.vhost, m.api, shellWord(m.vhost))
	case e.status == http.StatusNotFound && e.reason == reasonNothing:
		return tell(ErrForbidden, "user %q has no permissions on vhost %q, if that exists on %s: %s", m.api.User, m.vhost, m.api, m.setPermissions())
	case e.status == http.StatusNotFound:
		return tell(ErrNotFound, "%s", e.reason)
	case strings.HasPrefix(e.reason, reasonInequal):
		return tell(ErrInequivalent, "it exists and differs: %s", e.reason)
	default:
		return tell(ErrRefused, "the broker refuses it: %s", e.reason)
	}
}

func (m *Management) explainDenied(e *statusError) error {
	user := m.api.User
	switch {
	case e.reason == reasonNoTag:
		return tell(ErrForbidden, "user %q lacks the tag management on %s: rabbitmqctl set_user_tags %s management",
			user, m.api, shellWord(user))
	case e.reason == reasonNoVHost:
		return tell(ErrForbidden, "user %q has no permissions on vhost %q: %s", user, m.vhost, m.setPermissions())
	case e.reason == reasonNoObject:
		return tell(ErrForbidden, "user %q may not change policies: rabbitmqctl set_user_tags %s policymaker", user, shellWord(user))
	case strings.HasPrefix(e.reason, reasonAccess):
		return tell(ErrForbidden, "user %q lacks a permission (configure, write or read) for this in vhost %q: %s",
			user, m.vhost, giveRights(user))
	}
	said := ""
	if e.reason != "" && e.reason != reasonLogin && e.reason != reasonLogin4 {
		said = ", " + e.reason
	}
	return tell(ErrUnauthorized, "user %q is refused by %s (%d%s): check user and password in RABBITMQ_URL, --url, --api or --password-file",
		user, m.api, e.status, said)
}

// setPermissions says how the user gets permissions. Any at all, those for nothing
// too, let it see the virtual host.
func (m *Management) setPermissions() string {
	return fmt.Sprintf("%s; for plan alone: rabbitmqctl set_permissions -p %s %s '^$' '^$' '^$'", giveRights(m.api.User), shellWord(m.vhost), shellWord(m.api.User))
}

// giveRights says how a user gets what it needs, and no more.
func giveRights(user string) string {
	return fmt.Sprintf("run 'dlxctl rights' and give %s what it prints", shellWord(user))
}

// notRabbitMQ is the error for an address at which something else answers.
func (m *Management) notRabbitMQ(what string) error {
	return tell(ErrUnreachable, "what answers at %s is not RabbitMQ's management API (%s): give its URL with --api", m.api, what)
}

// oneLine makes a reason fit for an error: the broker writes some on several
// lines, and escaped for HTML.
func oneLine(reason string) string {
	const most = 500
	line := strings.Join(strings.Fields(html.UnescapeString(reason)), " ")
	if runes := []rune(line); len(runes) > most {
		line = string(runes[:most]) + "…"
	}
	return line
}

// shellWord quotes s where a shell would take it apart, so that a remedy can be
// pasted.
func shellWord(s string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./@:+,-]+$`).MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
