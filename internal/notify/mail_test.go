package notify

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/notice"
)

// mailsIn waits for a number of mails, and returns their envelopes and texts.
func mailsIn(t *testing.T, folder string, n int) (envelopes []string, mails []*mail.Message) {
	t.Helper()
	for i := range n {
		var data []byte
		brokertest.Eventually(t, "a mail", func() (there bool) {
			var err error
			data, err = os.ReadFile(filepath.Join(folder, fmt.Sprintf("%d.eml", i+1)))
			return err == nil
		})
		envelope, rest, _ := bytes.Cut(data, []byte("\n"))
		m, err := mail.ReadMessage(bytes.NewReader(rest))
		if err != nil {
			t.Fatal(err)
		}
		envelopes, mails = append(envelopes, string(envelope)), append(mails, m)
	}
	return envelopes, mails
}

// to returns the target of an address.
func to(t *testing.T, address string) Target {
	t.Helper()
	a, err := notice.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return Target{Address: a, Name: a.Name}
}

// runs runs a notifier until the function that it returns is called.
func runs(t *testing.T, n *Notifier) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.Run(ctx) }()
	return func() { cancel(); <-ended }
}

// A mail goes to each mailbox, by the user of the address, with the notices as text.
func TestAMail(t *testing.T) {
	t.Parallel()
	port, folder := brokertest.MailServer(t, "SMTP_USER=alerts", "SMTP_PASSWORD=s3cret/1")
	c := &counts{}
	target := to(t, "smtp://alerts:s3cret%2F1@127.0.0.1:"+port+
		"/?from=dlxctl%40example.com&to=a@example.com,b@example.com")
	n := New([]Target{target}, false, slog.New(slog.DiscardHandler), func(string) Counter { return c })
	n.Notify(deadLetter("m-1"), nil)
	n.Notify(of("<reports>"), nil)
	end := runs(t, n)
	brokertest.Eventually(t, "the mails to be counted", func() bool { return c.of("") == 4 })
	end()
	envelopes, mails := mailsIn(t, folder, 2)
	slices.Sort(envelopes)
	body, err := io.ReadAll(mails[0].Body)
	if err != nil || !slices.Equal(envelopes, []string{
		"dlxctl@example.com -> a@example.com", "dlxctl@example.com -> b@example.com",
	}) ||
		!strings.Contains(mails[0].Header.Get("Subject"), "[shop] 2 notices, the first: ") ||
		!strings.Contains(string(body), "dead letter of <reports>") || !strings.Contains(string(body), "dlxctl desk list") {
		t.Errorf("%v: %s: %v\n%s", err, envelopes, mails[0].Header, body)
	}
}

// Where TLS is only what the server offers, and no password goes over it, the server may have
// signed its certificate itself.
func TestAMailServerWithItsOwnCertificate(t *testing.T) {
	t.Parallel()
	pair := brokertest.NewAuthority(t).Sign(t, time.Hour, "mail.internal")
	port, folder := brokertest.MailServer(t, "SMTP_STARTTLS=1", "SMTP_CERT="+pair.CertFile,
		"SMTP_KEY="+pair.KeyFile)
	target := to(t, "smtp://127.0.0.1:"+port+"/?from=a@example.com&to=b@example.com")
	if err := target.Send(t.Context(), "a digest", "nothing failed", nil); err != nil {
		t.Fatal(err)
	}
	mailsIn(t, folder, 1)
}

// What a message says of itself becomes no header, no recipient and no further mail.
func TestNoMessageAddsAHeader(t *testing.T) {
	t.Parallel()
	port, folder := brokertest.MailServer(t)
	const attack = "x\r\nBcc: victim@example.com\r\n\r\n.\r\nRCPT TO:<victim@example.com>\r\n\u2028\x00=?utf-8?q?=0d=0aBcc:x?="
	hostile := Notice{
		Event: "dead_letter", Topology: attack, Queue: attack, MovedTo: attack, MessageID: attack, Messages: 1,
		Reason: attack, FirstFailure: attack, Owner: attack, Severity: attack, Error: attack, ErrorType: attack,
	}
	c := &counts{}
	templated := to(t, "smtp://127.0.0.1:"+port+"/?from=a@example.com&to=b@example.com")
	var err error
	if templated.Template, err = notice.ParseTemplate("{{.Queue}}\n{{.Error}} {{.MessageID}}"); err != nil {
		t.Fatal(err)
	}
	for _, target := range []Target{to(t, "smtp://127.0.0.1:"+port+"/?from=a@example.com&to=b@example.com"), templated} {
		n := New([]Target{target}, false, slog.New(slog.DiscardHandler), func(string) Counter { return c })
		n.Notify(hostile, nil)
		unroutable := hostile
		unroutable.Event = "unroutable"
		n.Notify(unroutable, nil)
		end := runs(t, n)
		end()
	}
	envelopes, mails := mailsIn(t, folder, 2)
	known := map[string]bool{}
	for _, name := range []string{
		"From", "To", "Subject", "Date", "Message-Id", "Auto-Submitted", "Mime-Version", "Content-Type",
		"Content-Transfer-Encoding", "User-Agent", "X-Mailer", "X-Peer", "X-Mailfrom", "X-Rcptto",
	} {
		known[name] = true
	}
	for i, m := range mails {
		for name, values := range m.Header {
			if !known[name] || len(values) != 1 {
				t.Errorf("the mail has the header %s: %q", name, values)
			}
		}
		if envelopes[i] != "a@example.com -> b@example.com" {
			t.Errorf("the envelope is %s", envelopes[i])
		}
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "*.eml")); len(files) != 2 || c.of("") != 4 {
		t.Errorf("%d mails, %d notices", len(files), c.of(""))
	}
}

// A password that is wrong is in no notice, and in no log. A mailbox that is refused is for good.
func TestAMailThatIsRefused(t *testing.T) {
	t.Parallel()
	port, _ := brokertest.MailServer(t, "SMTP_USER=alerts", "SMTP_PASSWORD=right")
	c, logged := &counts{}, &bytes.Buffer{}
	target := to(t, "smtp://alerts:s3cret@127.0.0.1:"+port+"/?from=a@example.com&to=b@example.com")
	n := New([]Target{target}, false, slog.New(slog.NewTextHandler(logged, nil)), func(string) Counter { return c })
	n.targets[0].pause = time.Millisecond
	n.Notify(deadLetter("m-1"), nil)
	end := runs(t, n)
	brokertest.Eventually(t, "the end of the tries", func() bool { return c.of("refused") == 1 })
	end()
	if c.of("") != 0 || strings.Contains(logged.String(), "s3cret") ||
		!strings.Contains(logged.String(), "target=smtp://127.0.0.1:"+port) {
		t.Errorf("%+v\n%s", c, logged)
	}
}

// A mailbox that the server refuses keeps no mail from the others, and is named in the log.
func TestOneMailboxOfTwoIsRefused(t *testing.T) {
	t.Parallel()
	port, folder := brokertest.MailServer(t, "SMTP_REFUSED=ben@example.com")
	c, logged := &counts{}, &bytes.Buffer{}
	target := to(t, "smtp://127.0.0.1:"+port+"/?from=a@example.com&to=ben@example.com,ann@example.com")
	n := New([]Target{target}, false, slog.New(slog.NewTextHandler(logged, nil)), func(string) Counter { return c })
	n.Notify(deadLetter("m-1"), nil)
	end := runs(t, n)
	brokertest.Eventually(t, "both answers", func() bool { return c.of("") == 1 && c.of("refused") == 1 })
	end()
	err := target.Send(t.Context(), "digest", "text", nil)
	envelopes, _ := mailsIn(t, folder, 2)
	if want := "a@example.com -> ann@example.com"; envelopes[0] != want || envelopes[1] != want ||
		err == nil || !strings.HasPrefix(err.Error(), "ben@example.com: ") || strings.Contains(err.Error(), "ann@") {
		t.Errorf("%q, %v", envelopes, err)
	}
	if got := logged.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "mailbox=ben@example.com") {
		t.Errorf("the log is:\n%s", got)
	}
}

// A server that accepts a connection and says nothing holds up no caller and no other target.
func TestATargetThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	h := newHook(t, always(200))
	hung, sent := &counts{}, &counts{}
	counters := map[string]*counts{"hangs": hung, "works": sent}
	hangs, works := to(t, "smtp://"+silent.Addr().String()+"/?from=a@example.com&to=b@example.com"), to(t, h.URL)
	hangs.Name, works.Name = "hangs", "works"
	n := New([]Target{hangs, works}, false, slog.New(slog.DiscardHandler),
		func(name string) Counter { return counters[name] })
	n.targets[1].every = time.Millisecond
	end := runs(t, n)
	for i := range 2 * capacity {
		n.Notify(of(fmt.Sprint(i)), nil)
		if i%100 == 0 {
			brokertest.Eventually(t, "the other target", func() bool { return sent.of("") == i+1 })
		}
	}
	brokertest.Eventually(t, "all notices at the other target", func() bool { return sent.of("") == 2*capacity })
	begin := time.Now()
	end()
	if took := time.Since(begin); took > finalPosts+5*time.Second {
		t.Errorf("to end took %s", took)
	}
	if n := hung.of("full") + hung.of("stopped") + hung.of("failed"); n != 2*capacity || hung.of("") != 0 {
		t.Errorf("%d of %d notices are counted as dropped", n, 2*capacity)
	}
}
