package broker

import (
	"errors"
	"fmt"
	"html"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
)

// What can be wrong between dlxctl and the broker. The errors that wrap these are one line with the
// fix, and contain no password.
var (
	// ErrUnreachable: nothing answers, or what answers is not a broker.
	ErrUnreachable = errors.New("the broker cannot be reached")
	// ErrUnauthorized: user or password are wrong.
	ErrUnauthorized = errors.New("user or password are refused")
	// ErrForbidden: the user lacks a tag or a permission.
	ErrForbidden = errors.New("not allowed")
	// ErrNoVHost: the virtual host does not exist.
	ErrNoVHost = errors.New("no such vhost")
	// ErrNotFound: an object that the request needs does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInequivalent: a queue or exchange of that name exists and differs.
	ErrInequivalent = errors.New("exists with other arguments")
	// ErrInUse: another connection uses a queue exclusively.
	ErrInUse = errors.New("in exclusive use")
	// ErrRefused: the broker rejects the request as wrong.
	ErrRefused = errors.New("refused by the broker")
	// ErrInternal: the broker failed to do what it accepts (541 INTERNAL_ERROR), as a busy node does.
	ErrInternal = errors.New("the broker failed")
)

// UserError is an error whose text is for the user. It wraps one of the errors above.
type UserError struct {
	kind error
	text string
}

func (e *UserError) Error() string { return e.text }

func (e *UserError) Unwrap() error { return e.kind }

// Errorf returns a UserError with this text that wraps kind.
func Errorf(kind error, format string, args ...any) error {
	return &UserError{kind: kind, text: fmt.Sprintf(format, args...)}
}

// ReasonInequivalent is in the reason of an error about a queue or exchange that exists and
// differs, over HTTP and AMQP alike.
const ReasonInequivalent = "inequivalent arg"

// GrantHint returns how a user gets the needed permissions, and no more.
func GrantHint(user string) string { return GrantHintFrom("dlxctl rights", "", user) }

// GrantHintFrom is like GrantHint, for a command that prints rights and the user that it prints
// them for. Empty: all that it prints. It says "add", as the user may have another role, such as
// that of the processor, and set_permissions would take away what that role needs.
func GrantHintFrom(command, role, user string) string {
	if role != "" {
		role = " for the user " + role
	}
	return fmt.Sprintf("run '%s' and add what it prints%s to the permissions of %s", command, role, text.ShellQuote(user))
}

// OneLine makes a reason fit for an error: the broker writes some on several lines, and escaped for
// HTML.
func OneLine(reason string) string {
	const most = 500
	line := strings.Join(strings.Fields(html.UnescapeString(reason)), " ")
	if runes := []rune(line); len(runes) > most {
		line = string(runes[:most]) + "…"
	}
	return line
}
