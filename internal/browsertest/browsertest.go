// Package browsertest gives tests a page in Chromium. scripts/chromium finds the program. Where
// there is none, and CI is not set, the test is skipped.
package browsertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// chromium returns the program that runs Chromium.
var chromium = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // installed once for all tests
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	program := filepath.Join(filepath.Dir(strings.TrimSpace(string(module))), "scripts", "chromium")
	out, err := exec.Command(program, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return program, nil
})

// Tab is a page in Chromium.
type Tab struct {
	context.Context

	t      *testing.T
	mu     sync.Mutex
	faults []string // what the console logged: errors, and what the policy refused
}

// Open opens Chromium.
func Open(t *testing.T) *Tab {
	t.Helper()
	program, err := chromium()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 77 && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("hide-scrollbars", false),
		chromedp.WindowSize(1400, 900),
	}
	allocator, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	b := &Tab{Context: ctx, t: t}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until the browser has ended, so that its folder can be removed
		closeTab()
		end()
	})
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	messages := chromedp.Console(ctx)
	go b.note(messages)
	return b
}

// note keeps what the console says.
func (b *Tab) note(messages iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range messages {
		if err != nil {
			return
		}
		b.mu.Lock()
		b.faults = append(b.faults, fmt.Sprintf("%s: %s %s", m.Type, m.Text, m.URL))
		b.mu.Unlock()
	}
}

// patience is far longer than anything takes on a busy machine.
const patience = 2 * time.Minute

// Run does actions, and fails the test if they take longer than two minutes.
func (b *Tab) Run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// Fatal ends the test, and says what the page shows.
func (b *Tab) Fatal(err error) {
	b.t.Helper()
	text, _ := chromedp.Run(b.Context, chromedp.Evaluate[string](`document.body.innerText`))
	b.t.Fatalf("%v; console: %v; the page says:\n%s", err, b.Console(), text)
}

// Console returns what the console says.
func (b *Tab) Console() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.faults...)
}

// Until waits until an expression is true, as long as [Tab.Run] does.
func (b *Tab) Until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		switch {
		case ok:
			return
		case err != nil:
			b.Fatal(fmt.Errorf("%s: %w", expression, err))
		}
		<-tick.C
	}
}

// Eval returns the value of an expression.
func Eval[T any](b *Tab, expression string) T {
	b.t.Helper()
	out, err := chromedp.Run(b.Context, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatal(fmt.Errorf("%s: %w", expression, err))
	}
	return out
}

// Do runs a script.
func (b *Tab) Do(script string) {
	b.t.Helper()
	b.Run(chromedp.Evaluate[chromedp.Void](script))
}

// Media sets what the page is shown on.
func (b *Tab) Media(p emulation.SetEmulatedMediaParams) {
	b.t.Helper()
	if _, err := chromedp.Call(b.Context, emulation.SetEmulatedMedia, p); err != nil {
		b.t.Fatal(err)
	}
}

// Size sets the size of the window, and whether it is dark.
func (b *Tab) Size(width, height int64, scheme string) {
	b.t.Helper()
	b.Run(chromedp.EmulateViewport(width, height))
	b.Media(emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// Shoot stores a picture of the page in DLXCTL_TEST_SHOTS, for a person to look at.
func (b *Tab) Shoot(name string) {
	b.t.Helper()
	folder := os.Getenv("DLXCTL_TEST_SHOTS")
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(b.Context, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	drawn, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		b.t.Fatal(err)
	}
	var small bytes.Buffer // Chromium compresses fast, not small
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, paletted(drawn)); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), small.Bytes(), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// paletted returns a picture in its 256 most frequent colors: a page has few, and shades of them.
func paletted(drawn image.Image) image.Image {
	counts, bounds := map[color.Color]int{}, drawn.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[drawn.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	out := image.NewPaletted(bounds, colors[:min(len(colors), 256)])
	draw.Draw(out, bounds, drawn, bounds.Min, draw.Src)
	return out
}

// Fits checks that nothing is wider than the window.
func (b *Tab) Fits() {
	b.t.Helper()
	if over := Eval[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		b.t.Errorf("the page is %d pixels wider than the window: %s", over, Eval[string](b,
			`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map((e) => e.tagName + "." + e.className).join(" ")`))
	}
}

// Silent checks that the console is empty: no error, and nothing that the policy refused.
func (b *Tab) Silent() {
	b.t.Helper()
	if found := b.Console(); len(found) > 0 {
		b.t.Errorf("the console says: %s", strings.Join(found, "\n"))
	}
}
