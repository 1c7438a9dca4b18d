package notice

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
)

// Kind is what a target takes.
type Kind string

// The kinds of targets.
const (
	Webhook Kind = "webhook" // JSON of dlxctl
	Slack   Kind = "slack"   // JSON that Slack and others show: a text
	Mail    Kind = "mail"    // a mail, over SMTP
)

// Address is where a target is. It holds secrets.
type Address struct {
	Kind Kind
	// URL is that of a webhook.
	URL string
	// Name names the target without its secrets: scheme, host and port.
	Name string

	// Host and Port are those of the mail server. TLS reports that the connection begins with TLS;
	// otherwise it may change to TLS.
	Host string
	Port int
	TLS  bool
	// User and Password are empty if the server asks for none.
	User, Password string
	From           string
	To             []string
}

const (
	submissionPort  = 587 // RFC 6409
	submissionsPort = 465 // RFC 8314
)

// ParseAddress reads the address of a target: http://, https://, slack+https://, smtp:// or smtps://.
// Its errors hold nothing of the address, which is a secret.
func ParseAddress(s string) (Address, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Address{}, errors.New("it is not a URL; write it like https://HOST/PATH, and %XX for odd characters in a password")
	}
	a := Address{Name: u.Scheme + "://" + u.Host, Host: u.Hostname()}
	if u.Hostname() == "" {
		return Address{}, errors.New("it is not a URL with a host; write it like https://HOST/PATH")
	}
	switch u.Scheme {
	case "http", "https":
		a.Kind, a.URL = Webhook, s
	case "slack+http", "slack+https":
		a.Kind, a.URL = Slack, strings.TrimPrefix(s, "slack+")
	case "smtp", "smtps":
		a.Kind, a.TLS = Mail, u.Scheme == "smtps"
		return a, a.mail(u)
	default:
		return Address{}, errors.New("its scheme is not known; write https://, slack+https://, smtp:// or smtps://")
	}
	return a, nil
}

// mail reads what a mail needs.
func (a *Address) mail(u *url.URL) (err error) {
	a.Port = submissionPort
	if a.TLS {
		a.Port = submissionsPort
	}
	if p := u.Port(); p != "" {
		if a.Port, err = strconv.Atoi(p); err != nil || a.Port < 1 || a.Port > 65535 {
			return errors.New("its port is not a number from 1 to 65535")
		}
	}
	a.User = u.User.Username()
	a.Password, _ = u.User.Password()
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("what follows ? is not readable; write ?from=ADDRESS&to=ADDRESS")
	}
	for name := range query {
		if name != "from" && name != "to" {
			return errors.New("it has a parameter other than from and to; write ?from=ADDRESS&to=ADDRESS")
		}
	}
	if len(query["from"]) != 1 || len(query["to"]) == 0 {
		return errors.New("it has not one from and a to; write ?from=ADDRESS&to=ADDRESS")
	}
	if a.From, err = mailbox(query.Get("from")); err != nil {
		return fmt.Errorf("from %w", err)
	}
	for to := range strings.SplitSeq(strings.Join(query["to"], ","), ",") {
		box, err := mailbox(to)
		if err != nil {
			return fmt.Errorf("to %w", err)
		}
		a.To = append(a.To, box)
	}
	return nil
}

// mailbox returns the bare address of a mailbox.
func mailbox(s string) (string, error) {
	box, err := mail.ParseAddress(s)
	if err != nil {
		return "", errors.New("is not the address of a mailbox; write it like alerts@example.com, and + as %2B")
	}
	return box.Address, nil
}
