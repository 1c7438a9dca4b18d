package site_test

import (
	"encoding/json"
	"html"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/dlxctl/dlxctl/internal/browsertest"
)

// pagesOf returns the HTML pages of the site, by their paths in it.
func pagesOf(t *testing.T) map[string]string {
	t.Helper()
	out, root := map[string]string{}, built(t)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".html" {
			out[name] = read(t, filepath.Join(root, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// target returns the file and the heading to which a link of a page leads.
func target(page, to string) (file, heading string) {
	file, heading, _ = strings.Cut(html.UnescapeString(to), "#")
	if file == "" {
		return page, heading
	}
	return path.Join(path.Dir(page), file), heading
}

var (
	hrefs = regexp.MustCompile(`<[a-z][^>]*\s(?:href|src)="([^"]*)"`)
	ids   = regexp.MustCompile(`<[a-z][^>]*\sid="([^"]*)"`)
)

// Each link and each picture of the site is there, and so is the heading that a link names.
func TestLinksOfTheSite(t *testing.T) {
	t.Parallel()
	pages, links := pagesOf(t), 0
	for page, text := range pages {
		for _, found := range hrefs.FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
				continue
			}
			links++
			file, heading := target(page, found[1])
			if _, err := os.Stat(filepath.Join(built(t), file)); err != nil || path.Ext(file) == "" {
				t.Errorf("%s: the link %s leads to no file", page, found[1])
				continue
			}
			if heading != "" && !slices.ContainsFunc(ids.FindAllStringSubmatch(pages[file], -1), func(id []string) bool {
				return html.UnescapeString(id[1]) == heading
			}) {
				t.Errorf("%s: the link %s leads to no heading", page, found[1])
			}
		}
	}
	if links < 3000 {
		t.Errorf("only %d links were found", links)
	}
}

// Each page of the documentation is on the site and in its search. The contents next to each page
// have them in the order of docs/README.md.
func TestThePagesAreInTheOrderOfTheIndex(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	type section struct {
		To string `json:"u"`
	}
	var index []section
	if err := json.Unmarshal([]byte(read(t, filepath.Join(built(t), "search.json"))), &index); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"docs/*.md", "docs/rules/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range found {
			on := strings.TrimSuffix(filepath.ToSlash(file)[len("../../"):], ".md") + ".html"
			on = strings.Replace(on, "README.html", "index.html", 1)
			text, there := pages[on]
			if !there {
				t.Errorf("the site has no %s", on)
				continue
			}
			if !strings.Contains(text, "<h1 ") || strings.Contains(text, "<!--") {
				t.Errorf("%s has no heading, or a comment", on)
			}
			if !slices.Contains(index, section{on}) {
				t.Errorf("the search does not know %s", on)
			}
		}
	}
	var want []string
	linked := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	for _, found := range linked.FindAllStringSubmatch(read(t, "../../docs/README.md"), -1) {
		on := path.Join("docs", strings.TrimSuffix(found[1], ".md")+".html")
		if strings.HasPrefix(found[1], "../") {
			on = path.Join("project", path.Base(on))
		}
		on = strings.Replace(on, "README.html", "index.html", 1)
		if !slices.Contains(want, on) {
			want = append(want, on)
		}
	}
	_, contents, _ := strings.Cut(pages["docs/trace.html"], `<nav class="contents"`)
	var got []string
	for _, found := range hrefs.FindAllStringSubmatch(strings.Split(contents, "</nav>")[0], -1) {
		file, _ := target("docs/trace.html", found[1])
		got = append(got, file)
	}
	if want = append([]string{"docs/index.html"}, want...); !slices.Equal(got, want) {
		t.Errorf("the contents are\n%q, and docs/README.md has\n%q", got, want)
	}
}

// A person reads a page, light and dark, on a desk and on a phone, and searches with the keyboard.
func TestThePagesInTheBrowser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := browsertest.Open(t)
	for _, at := range []struct {
		name   string
		width  int64
		scheme string
	}{{"light", 1400, "light"}, {"dark", 1400, "dark"}, {"phone", 360, "light"}, {"phone-dark", 360, "dark"}} {
		b.Size(at.width, 800, at.scheme)
		for _, page := range []string{"docs/index", "docs/file", "docs/concepts", "docs/rules/cycle-cut"} {
			b.Run(chromedp.Navigate(s.URL+"/"+page+".html"), chromedp.WaitVisible(`.find`))
			b.Fits()
			b.Shoot(path.Base(page) + "-" + at.name)
		}
	}
	b.Run(chromedp.SendKeys(`#search`, "delivery limit"))
	b.Until(`!document.querySelector("#hits").hidden && document.querySelectorAll("#hits a").length > 5`)
	b.Fits()
	b.Shoot("search-phone-dark")
	b.Run(chromedp.KeyEvent(kb.ArrowDown))
	b.Until(`document.activeElement === document.querySelector("#hits a")`)
	wanted := browsertest.Eval[string](b, `document.activeElement.href`)
	b.Run(chromedp.KeyEvent(kb.Enter))
	b.Until(`location.href === ` + quoted(wanted))
	b.Run(chromedp.WaitVisible(`.find`), chromedp.SendKeys(`#search`, "<img src=x> zzzz"))
	b.Until(`document.querySelector("#hits .none")`)
	b.Silent()
}

func quoted(s string) string {
	out, _ := json.Marshal(s)
	return string(out)
}
