package page_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Texts and marks have the contrast of WCAG 2.2 AA, light, dark and printed: 4.5 for text, and 3
// for the edges of controls and the focus.
func TestColorsHaveEnoughContrast(t *testing.T) {
	t.Parallel()
	style, err := os.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	light, rest, _ := strings.Cut(string(style), "@media (prefers-color-scheme: dark)")
	dark, _, _ := strings.Cut(rest, "}\n}")
	_, printed, _ := strings.Cut(rest, "@media print")
	for name, block := range map[string]string{"light": light, "dark": dark, "printed": printed} {
		colors := map[string][3]float64{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(block, -1) {
			colors[m[1]] = linear(t, m[2])
		}
		check := func(front, back string, least float64) {
			f, okFront := colors[front]
			b, okBack := colors[back]
			if !okFront || !okBack {
				if name != "printed" { // it inherits what it does not set
					t.Errorf("%s: --%s or --%s is not defined", name, front, back)
				}
				return
			}
			if got := contrast(f, b); got < least {
				t.Errorf("%s: --%s on --%s has a contrast of %.2f, less than %.1f", name, front, back, got, least)
			}
		}
		for _, back := range []string{"ground", "panel", "code", "chosen"} {
			for _, front := range []string{"text", "muted", "accent", "danger", "warn", "good"} {
				check(front, back, 4.5)
			}
		}
		check("on-accent", "accent", 4.5)
		check("on-danger", "danger", 4.5)
		for _, back := range []string{"ground", "panel", "chosen"} {
			check("edge", back, 3)
		}
		check("accent", "bar", 3)
	}
}

// linear returns the linear light of a color.
func linear(t *testing.T, hex string) (out [3]float64) {
	t.Helper()
	for i := range out {
		var n int
		if _, err := fmt.Sscanf(hex[2*i:2*i+2], "%02x", &n); err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			out[i] = c / 12.92
		} else {
			out[i] = math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return out
}

// contrast is the contrast ratio of two colors, as WCAG defines it.
func contrast(a, b [3]float64) float64 {
	light := func(c [3]float64) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05 }
	return max(light(a)/light(b), light(b)/light(a))
}

// The page loads nothing from elsewhere, and has no script or style within its HTML.
func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"index.html", "style.css", "main.js", "dom.js", "api.js", "list.js", "message.js", "queue.js", "action.js", "runs.js",
		"overview.js",
	} {
		data, err := os.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, banned := range []string{
			"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style=\"", "onclick=",
			"https://", "http://", "url(", "@import", "localStorage", "sessionStorage", "cookie",
		} {
			if strings.Contains(string(data), banned) {
				t.Errorf("%s contains %s", name, banned)
			}
		}
	}
}
