package site_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/browsertest"
)

// server serves the site, as any server of static files does, and keeps what it was asked for.
type server struct {
	*httptest.Server

	mu    sync.Mutex
	asked []string
}

func serve(t *testing.T) *server {
	t.Helper()
	s, files := &server{}, http.FileServer(http.Dir(built(t)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
		s.mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// visit opens the page.
func visit(t *testing.T, s *server) *browsertest.Tab {
	t.Helper()
	b := browsertest.Open(t)
	b.Run(chromedp.Navigate(s.URL), chromedp.WaitVisible(`#choose`))
	return b
}

// choose hands the page a file, as the dialog of the browser does.
func choose(t *testing.T, b *browsertest.Tab, path string) {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	b.Run(chromedp.SetUploadFiles(`#file`, []string{path}))
}

// choice is a file with a content of the test.
func choice(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// document is what the command says of a file.
type document struct {
	Summary  struct{ Errors, Warnings, Notes int }
	Findings []struct{ Severity, Kind, Name, Evidence, Consequence, Remedy string }
}

const ended = `document.querySelector("#busy").hidden && document.querySelector("#result").children.length > 0`

// A person chooses a file, and reads the findings: those of the command, each with its evidence and
// its fix. Then the picture, and the topology file and the way of a message, which are those of the
// commands. Nothing was sent: the server was asked for nothing but the files of the site.
func TestAFileIsAuditedInTheBrowser(t *testing.T) {
	t.Parallel()
	const file = "../../testdata/real/ons-census-rm.json"
	s, dlxctl := serve(t), program(t)
	b := visit(t, s)
	b.Shoot("start")
	choose(t, b, file)
	b.Until(ended)
	t.Logf("the first result was there %.0f ms after the page was opened", browsertest.Eval[float64](b, `performance.now()`))
	var want document
	if err := json.Unmarshal([]byte(dlxctl(file, "audit", filepath.Base(file), "-o", "json")), &want); err != nil {
		t.Fatal(err)
	}
	var expected []string
	for _, f := range want.Findings {
		expected = append(expected, strings.Join([]string{
			f.Severity, f.Kind + " " + f.Name, f.Evidence, f.Consequence, f.Remedy,
		}, "\n"))
	}
	shown := browsertest.Eval[[]string](b, `[...document.querySelectorAll(".finding")].map((e) => [
		e.closest(".rule").querySelector(".badge").textContent,
		e.querySelector("h3").firstChild.data + e.querySelector(".mono").textContent,
		...[".evidence", ".consequence", ".fix code, .fix p"].map((s) => e.querySelector(s)?.textContent ?? "")].join("\n"))`)
	slices.Sort(expected)
	slices.Sort(shown)
	if !slices.Equal(expected, shown) {
		t.Errorf("the page shows %d findings, the command %d:\n%s\n\nand\n\n%s", len(shown), len(expected),
			strings.Join(shown, "\n---\n"), strings.Join(expected, "\n---\n"))
	}
	counts := fmt.Sprintf("%d errors", want.Summary.Errors)
	if got := browsertest.Eval[string](b, `document.querySelector(".counts").innerText`); !strings.Contains(got, counts) {
		t.Errorf("the page says %q, the command %s", got, counts)
	}
	b.Fits()
	b.Shoot("findings")

	b.Run(chromedp.Click(`#tab-1`))
	b.Until(`document.querySelector(".drawing img")?.naturalWidth > 300`)
	b.Fits()
	b.Shoot("graph")
	b.Run(chromedp.Click(`#tab-2`))
	b.Until(`document.querySelector("pre.body")`)
	const text = `document.querySelector("pre.body").textContent`
	if d := cmp.Diff(dlxctl(file, "import", filepath.Base(file)), browsertest.Eval[string](b, text)); d != "" {
		t.Errorf("the topology file (-command +page):\n%s", d)
	}
	b.Fits()
	b.Shoot("file")
	b.Run(chromedp.Click(`#tab-3`), chromedp.SetValue(`[list=exchange-names]`, "events"),
		chromedp.SetValue(`[data-name=key]`, "event.case.update"), chromedp.SetValue(`[type=number]`, "2"),
		chromedp.Click(`form button`))
	b.Until(`document.querySelector(".problem, pre.body")`)
	way := dlxctl(file, "trace", filepath.Base(file), "--exchange", "events", "--key", "event.case.update", "--fail", "2")
	if d := cmp.Diff(way, browsertest.Eval[string](b, text)); d != "" {
		t.Errorf("the way of the message (-command +page):\n%s", d)
	}
	b.Shoot("trace")

	for _, r := range s.requests() {
		method, path, _ := strings.Cut(r, " ")
		_, err := os.Stat(filepath.Join(built(t), path))
		if method != http.MethodGet || err != nil || strings.Contains(path, "?") {
			t.Errorf("the page asked the server for %s", r)
		}
	}
	b.Silent()
}

// The page and its worker can connect to no other server.
func TestNothingLeavesTheBrowser(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		reached <- r.URL.Path
	}))
	defer other.Close()
	s := serve(t)
	b := visit(t, s)
	// A worker that begins as that of ask.js does, with the same policy.
	b.Do(fmt.Sprintf(`window.tried = []; (async () => {
		const out = window.tried;
		const code = "fetch('%[1]s/worker').then(() => postMessage('reached'), () => postMessage('refused'))";
		const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
		out.push(await new Promise((resolve) => { worker.onmessage = (e) => resolve("worker " + e.data); }));
		out.push("page " + await fetch("%[1]s/page", { mode: "no-cors" }).then(() => "reached", () => "refused"));
		const image = new Image();
		out.push("image " + await new Promise((resolve) => {
			image.onload = () => resolve("reached");
			image.onerror = () => resolve("refused");
			image.src = "%[1]s/image";
		}));
	})(); undefined`, other.URL))
	b.Until(`window.tried.length === 3`)
	got := browsertest.Eval[[]string](b, `window.tried`)
	if want := []string{"worker refused", "page refused", "image refused"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	select {
	case path := <-reached:
		t.Errorf("another server was asked for %s", path)
	default:
	}
}

// Another file than a definitions file gets a message, and the page works on: the next file is
// audited. HTML in names is text.
func TestHostileFilesInTheBrowser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := visit(t, s)
	for _, tc := range []struct{ name, content, want string }{
		{"empty.json", "", "empty.json: the file is empty"},
		{"cut.json", `{"queues": [{"name": `, "cut.json:1:"},
		{"other.json", `{"a": [1, 2, 3]}`, "other.json"},
		{"page.json", "<html></html>", "the file is a web page"},
		{"deep.json", strings.Repeat(`{"a":`, 200_000), "deep.json"},
		{"picture.json", "\x89PNG\x00\x00", "the file is not text"},
	} {
		choose(t, b, choice(t, tc.name, tc.content))
		b.Until(fmt.Sprintf(`%s && document.querySelector(".problem")?.textContent.includes(%q)`, ended, tc.want))
	}
	b.Shoot("problem")
	const evil = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	hostile, err := json.Marshal(map[string]any{
		"vhosts": []any{map[string]any{"name": evil}},
		"exchanges": []any{map[string]any{
			"name": evil, "vhost": evil, "type": "topic", "durable": true, "auto_delete": false, "internal": false,
			"arguments": map[string]any{},
		}},
		"queues": []any{map[string]any{
			"name": evil, "vhost": evil, "durable": true, "auto_delete": false,
			"arguments": map[string]any{"x-dead-letter-exchange": evil, "x-message-ttl": 1000},
		}},
		"bindings": []any{map[string]any{
			"source": evil, "vhost": evil, "destination": evil, "destination_type": "queue", "routing_key": "\u202ex",
			"arguments": map[string]any{},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	choose(t, b, choice(t, `<b>x.json`, string(hostile)))
	b.Until(ended + ` && document.querySelector(".finding")`)
	b.Fits()
	b.Shoot("hostile")
	b.Run(chromedp.Click(`#tab-1`))
	b.Until(`document.querySelector(".drawing img")?.naturalWidth > 50`)
	b.Shoot("hostile-graph")
	b.Run(chromedp.Click(`#tab-2`))
	b.Until(`document.querySelector("pre.body, .problem")`)
	b.Run(chromedp.Click(`#tab-3`), chromedp.Click(`form button`))
	b.Until(`document.querySelector("pre.body, .problem")`)
	if title := browsertest.Eval[string](b, `document.title`); strings.Contains(title, "owned") {
		t.Error("a script of the file ran")
	}
	const made = `document.querySelectorAll("#result img[src=x], #result script, #result b").length`
	if n := browsertest.Eval[int](b, made); n > 0 {
		t.Errorf("the file made %d elements", n)
	}
	b.Silent()
}

// What is stopped while the browser still reads the file ends at once, and is not audited later.
func TestAFileThatIsReadIsStopped(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := visit(t, s)
	b.Do(`File.prototype.arrayBuffer = () => new Promise((resolve) => { window.readTo = resolve; })`)
	choose(t, b, choice(t, "slow.json", "{}"))
	b.Run(chromedp.WaitVisible(`#stop`), chromedp.Click(`#stop`))
	b.Until(ended + ` && document.querySelector(".problem").textContent === "stopped"`)
	b.Do(`window.readTo(new TextEncoder().encode("{}").buffer)`)
	b.Run(chromedp.Click(`[data-example="datban.json"]`))
	b.Until(ended + ` && document.querySelector(".score")`)
	if got := browsertest.Eval[string](b, `document.querySelector("#result h2").textContent`); got != "datban.json" {
		t.Errorf("the page shows %q", got)
	}
	b.Silent()
}

// A file of 10 MB does not hang the page: its audit can be stopped, and another file is audited.
func TestALargeFileIsStopped(t *testing.T) {
	t.Parallel()
	var f strings.Builder
	f.WriteString(`{"vhosts":[{"name":"/"}],"exchanges":[],"bindings":[],"queues":[`)
	for i := 0; f.Len() < 10_000_000; i++ {
		if i > 0 {
			f.WriteString(",")
		}
		fmt.Fprintf(&f, `{"name":"orders.%06d","vhost":"/","durable":true,"auto_delete":false,
			"arguments":{"x-dead-letter-exchange":"dlx.%d","x-message-ttl":60000}}`, i, i%100)
	}
	f.WriteString(`]}`)
	large := choice(t, "large.json", f.String())
	s := serve(t)
	b := visit(t, s)
	choose(t, b, large)
	b.Run(chromedp.WaitVisible(`#stop`), chromedp.Click(`#stop`))
	b.Until(ended + ` && document.querySelector(".problem").textContent === "stopped"`)
	b.Run(chromedp.Click(`[data-example="datban.json"]`))
	b.Until(ended + ` && document.querySelector(".score")`)
	b.Run(chromedp.Click(`#tab-1`))
	b.Until(`document.querySelector(".drawing img")`)
	b.Silent()
}

// The page fits a phone, and the dark. A text that is pasted is audited, and so is a file that is
// dropped.
func TestThePageFitsAPhoneAndTheDark(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := visit(t, s)
	data := read(t, "../../testdata/real/neic-sda.json")
	for _, at := range []struct {
		name   string
		width  int64
		scheme string
	}{{"phone", 360, "light"}, {"phone-dark", 360, "dark"}, {"dark", 1400, "dark"}} {
		b.Size(at.width, 800, at.scheme)
		b.Run(chromedp.Navigate(s.URL), chromedp.WaitVisible(`#choose`))
		b.Fits()
		b.Shoot("start-" + at.name)
		b.Do(fmt.Sprintf(`{ const d = new DataTransfer(); d.items.add(new File([%q], "neic.json"));
			document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: d, bubbles: true, cancelable: true })); }`, data))
		b.Until(ended + ` && document.querySelector(".finding")`)
		b.Fits()
		b.Do(`document.querySelector("#result").scrollIntoView()`)
		b.Shoot("findings-" + at.name)
		b.Run(chromedp.Click(`#tab-1`))
		b.Until(`document.querySelector(".drawing img")?.naturalWidth > 300`)
		b.Fits()
		b.Shoot("graph-" + at.name)
		b.Run(chromedp.Click(`#tab-3`))
		b.Fits()
		b.Shoot("trace-" + at.name)
	}
	b.Do(`document.querySelector("#paste").open = true; document.querySelector("#text").value = "{}"`)
	b.Run(chromedp.Click(`#read`))
	b.Until(ended + ` && document.querySelector(".problem, .score").textContent !== ""`)
	b.Silent()
}
