package page_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// hostileHeaders are headers of every type that the broker keeps, with values that a form or HTML
// could damage.
func hostileHeaders() amqp091.Table {
	return amqp091.Table{
		"<b onclick=owned()>": `<img src=x onerror="document.title='owned'">`, "lines": "a\r\nb\r\nc", "tenant": "eu-1",
		"bool": true, "int8": int8(-1), "byte": byte(200), "int16": int16(-2), "uint16": uint16(3), "int32": int32(4),
		"uint32": uint32(5), "int64": int64(1<<53 + 1), "float32": float32(0.5), "float64": 7.0,
		"decimal": amqp091.Decimal{Scale: 2, Value: 12345}, "void": nil, "not UTF-8": "\xff<", "empty": "",
		"binary": []byte{0xff, 0, 'a'}, "time": time.Unix(1_700_000_000, 0),
		"table": amqp091.Table{"n": int32(7), "void": nil, "<i>": []any{int64(1), 1.0, nil, time.Unix(1, 0), []byte{0}}},
		"list":  []any{"a", int16(2), amqp091.Table{"deep": byte(1)}}, "long": strings.Repeat("<", 20_000),
		"authorization": "Zx81secret", "user": amqp091.Table{"mail": "ann@example.org", "n": int32(1)},
	}
}

// In a browser, on a real broker: a person changes headers and the routing key of a message, whose
// body is compressed, so that it cannot be edited. All other headers arrive with their values and
// types, also those that are masked, which the browser never gets.
func TestHeadersAndTheKeyAreEdited(t *testing.T) {
	t.Parallel()
	b := browse(t)
	target := brokertest.VHost(t)
	d := realDesk(t, target)
	rules, err := redact.New(redact.Rules{Paths: []string{"headers.authorization", "headers.user.mail"}})
	if err != nil {
		t.Fatal(err)
	}
	d.Reader.Redactor = func(string) *redact.Redactor { return rules }
	failed := time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04:05.000Z")
	headers := hostileHeaders()
	maps.Copy(headers, map[string]any{
		"retry-queue": "billing", "retry-exchange": "events", "retry-routing-key": "order.placed", "retry-attempts": int64(1),
		"retry-reason": "rejected", "retry-first-failed-at": failed, "retry-last-failed-at": failed, "CC": []any{"@billing"},
	})
	body := compressed(t, `{"order":1}`)
	brokertest.PublishConfirmed(t, target.Confirming(t), "shop.dead", "order.placed", amqp091.Publishing{
		MessageId: "order-1", ContentType: "application/json", ContentEncoding: "gzip", Body: body, Headers: headers,
		DeliveryMode: amqp091.Persistent,
	})
	arrived, err := target.Channel(t).Consume("billing", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := serveWith(t, &engine{}, func(c *page.Config) { c.For(d) }, "edit")
	begin(t, s.Page)
	b.size(1400, 900, "light")
	b.open(s, "/queue/billing.dead")
	b.until(`document.querySelectorAll(".row .cause").length === 1`)
	b.do(`document.querySelector("#row-0 .summary").click()`)
	b.run(chromedp.WaitVisible(`.message .acts button`), chromedp.Click(`.message .acts button`),
		chromedp.WaitVisible(`#headers .edited`))
	b.until(`document.querySelector("dialog").innerText.includes("The body stays as it is: the body is gzip, json")`)
	shown := eval[string](b, `document.querySelector("dialog").innerHTML +
		[...document.querySelectorAll("dialog textarea")].map((e) => e.value).join()`)
	if strings.Contains(shown, "Zx81secret") || strings.Contains(shown, "ann@example.org") {
		t.Error("the form has a masked value")
	}
	b.fixedHeaders()
	b.shoot("edit-headers")
	// Unchanged is refused.
	b.run(chromedp.Click(`dialog button.primary`))
	b.until(`document.querySelector("dialog").innerText.includes("the message is unchanged, and nothing was sent")`)
	b.header("tenant", "string", "eu-2 <script>")
	b.header("int32", "int32", "not a number")
	b.run(chromedp.Click(`dialog button.primary`))
	b.until(`document.querySelector("dialog").innerText.includes('the header "int32": "not a number" is not of type int32')`)
	b.header("int32", "int32", "5")
	b.header("lines", "string", "a\nB\nc")
	b.do(`document.querySelector('[data-header="void"] button').click()`)
	b.run(chromedp.Click(`#add-header`), chromedp.SetValue(`dialog .edited input`, "added"))
	b.header("", "array", `[{"int8": 1}, null]`)
	b.run(chromedp.SetValue(`#o-key`, "order.changed"), chromedp.Click(`dialog button.primary`),
		chromedp.WaitVisible(`#go`))
	for _, line := range []string{
		"-tenant  eu-1", "+tenant  eu-2 <script>", "+int32  5 (int32)", "-void   (null)", "+lines  a\\r\\nB\\r\\nc",
		`+added  [{"int8":1},null] (array)`, "-routing key  order.placed", "+routing key  order.changed",
	} {
		b.until(fmt.Sprintf(`document.querySelector("dialog pre.diff").textContent.includes(%q)`, line+"\n"))
	}
	b.until(`document.querySelector("dialog").innerText.includes("shop.return, key order.changed")`)
	b.until(`document.querySelector("dialog code").textContent.includes("--set-header $'lines:string=a\\r\\nB\\r\\nc'")`)
	b.until(`document.querySelector("dialog code").textContent.includes("--remove-header void")`)
	b.shoot("edit-headers-diff")
	b.run(chromedp.Click(`#go`))
	b.checkEdited(arrived, body)
	b.until(`document.querySelector(".run .state")?.textContent === "done"`)
	if title := eval[string](b, `document.title`); strings.Contains(title, "owned") {
		t.Error("a header was read as HTML")
	}
	for _, found := range b.console() { // what the test provokes
		if !strings.Contains(found, "status of 409") {
			t.Errorf("the console says: %s", found)
		}
	}
}

// header writes the value of a header into the form. An empty name is a new header.
func (b *tab) header(name, kind, value string) {
	b.t.Helper()
	b.do(fmt.Sprintf(`(() => {
		const row = document.querySelector('[data-header="' + %q + '"]');
		row.querySelector("select").value = %q;
		row.querySelector("textarea").value = %q;
	})()`, name, kind, value))
}

// fixedHeaders checks that the form says which headers cannot be edited, and why.
func (b *tab) fixedHeaders() {
	b.t.Helper()
	shown := eval[string](b, `[...document.querySelectorAll("dialog .fixed li")].map((e) => e.innerText.replace(/\s+/g, " ")).join("\n")`)
	for _, want := range []string{
		"authorization [masked] rules mask it, and it stays as it is", `"mail":"[masked]"`,
		"retry-queue billing dlxctl or RabbitMQ writes it", "the page edits headers of up to 8192 bytes",
	} {
		if !strings.Contains(shown, want) {
			b.t.Errorf("the fixed headers are\n%s\nwant %q", shown, want)
		}
	}
}

// checkEdited checks what the edited message is at its consumer.
func (b *tab) checkEdited(arrived <-chan amqp091.Delivery, body []byte) {
	b.t.Helper()
	var got amqp091.Delivery
	select {
	case got = <-arrived:
	case <-time.After(30 * time.Second):
		b.t.Fatal("the message did not arrive")
	}
	if string(got.Body) != string(body) || got.ContentEncoding != "gzip" || got.RoutingKey != "order.changed" ||
		got.MessageId == "order-1" || got.MessageId == "" {
		b.t.Errorf("the message has the key %s, the id %s and %d bytes", got.RoutingKey, got.MessageId, len(got.Body))
	}
	want := hostileHeaders()
	want["tenant"], want["int32"], want["lines"] = "eu-2 <script>", int32(5), "a\r\nB\r\nc"
	want["added"] = []any{int8(1), nil}
	delete(want, "void")
	for name, v := range want {
		if !reflect.DeepEqual(got.Headers[name], v) {
			b.t.Errorf("the header %q is %T %.100v, want %T %.100v", name, got.Headers[name], got.Headers[name], v, v)
		}
	}
	for name := range got.Headers {
		published := name == "retry-exchange" || name == "retry-routing-key" // where the publisher sent it
		if _, wanted := want[name]; !wanted && !published && !strings.HasPrefix(name, "desk-") && name != "CC" {
			b.t.Errorf("the header %q is too much", name)
		}
	}
}
