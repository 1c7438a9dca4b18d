package redact_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/cputime"
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// A text that has a long masked value, or its beginning, is masked whole. Others are left as they
// are.
func TestALongValueIsMaskedElsewhere(t *testing.T) {
	t.Parallel()
	long := "the beginning of a secret " + strings.Repeat("that goes on ", 100) + "to its end"
	p := redactor(t, redact.Rules{Paths: []string{"body.customer.note"}}).Begin(nil)
	body := `{"customer":{"note":"` + long + `"},"other":"fine"}`
	d := p.Document((*decode.Decoder)(nil).Decode(decode.Input{Body: []byte(body)}))
	if strings.Contains(d.Text, "secret") || !strings.Contains(d.Text, "fine") {
		t.Errorf("the body is %s", d.Text)
	}
	for text, want := range map[string]string{
		"failed: " + long:                  redact.Mask,
		"failed: " + long[:len(long)-1]:    redact.Mask,
		"failed: the beginning of a story": "failed: the beginning of a story",
	} {
		if got := p.Text(text); got != want {
			t.Errorf("Text(%.60q) = %.60q, want %.60q", text, got, want)
		}
	}
}

// A long value that repeats itself is searched in a time that grows as its length does. With its
// square, a value of 1 MiB takes minutes.
func TestAHostileValueIsSearchedFast(t *testing.T) {
	t.Parallel()
	r := redactor(t, redact.Rules{Paths: []string{"body.customer.email"}, Types: []string{"email", "iban", "bearer"}})
	for name, body := range map[string]string{
		"a text":         `["` + strings.Repeat("a@b.co ", 150_000) + `"]`,
		"a list in text": `["` + strings.TrimSuffix(strings.Repeat("[1],", 250_000), ",") + `"]`,
	} {
		began := cputime.Process()
		d := r.Begin(nil).Document((*decode.Decoder)(nil).Decode(decode.Input{Body: []byte(body)}))
		if took := cputime.Process() - began; took > 20*time.Second || strings.Contains(d.Text, "@") {
			t.Errorf("%s of %d bytes took %s, and became %.60q", name, len(body), took, d.Text)
		}
	}
}
