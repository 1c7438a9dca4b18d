package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// repository is where the site sends readers for files that it does not show.
const repository = "https://github.com/dlxctl/dlxctl/blob/main/"

// project are the pages of the repository itself that the documentation names.
var project = []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md"}

type page struct {
	source string // path in the repository
	to     string // path in the site
	title  string
	root   ast.Node
	data   []byte
}

// chapter is a part of the contents: a heading of docs/README.md, and the pages under it.
type chapter struct {
	Title string
	Links []link
}

type link struct {
	Title, To string
	Here      bool
}

// entry is a section in the index of the search.
type entry struct {
	// Page and Heading name the section; To is where it is, from the folder of the site.
	Page    string `json:"p"`
	Heading string `json:"h"`
	To      string `json:"u"`
	Text    string `json:"t"`
}

// siteOf returns where the site has a file of the repository. Empty: it has it not.
func siteOf(source string) string {
	switch dir, name := path.Split(source); {
	case dir == "" && slices.Contains(project, name):
		return "project/" + strings.TrimSuffix(name, ".md") + ".html"
	case strings.HasPrefix(dir, "docs/") && name == "README.md":
		return dir + "index.html"
	case strings.HasPrefix(dir, "docs/") && strings.HasSuffix(name, ".md"):
		return dir + strings.TrimSuffix(name, ".md") + ".html"
	case dir == "docs/images/" && (path.Ext(name) == ".svg" || path.Ext(name) == ".png"):
		return source
	}
	return ""
}

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
		extension.Strikethrough, extension.Linkify))

// documentation writes the pages, and the index of their search.
func documentation(root, out string) error {
	var pages []*page
	for _, pattern := range []string{"docs/*.md", "docs/rules/*.md", "*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, file := range found {
			source, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			source = filepath.ToSlash(source)
			if siteOf(source) == "" {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			p := &page{source: source, to: siteOf(source), data: data, root: markdown.Parser().Parse(text.NewReader(data))}
			pages = append(pages, p)
		}
	}
	var index []entry
	for _, p := range pages {
		if err := p.prepare(root); err != nil {
			return err
		}
		index = append(index, p.entries()...)
	}
	contents, err := contentsOf(pages)
	if err != nil {
		return err
	}
	for _, p := range pages {
		if err := p.write(out, contents); err != nil {
			return err
		}
	}
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return write(filepath.Join(out, "search.json"), data)
}

// prepare names headings as GitHub does, so that links find them, and leads links to the pages of
// the site.
func (p *page) prepare(root string) error {
	taken := map[string]int{}
	var foreign []*ast.Image
	err := ast.Walk(p.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			said := plain(n, p.data)
			if p.title == "" {
				p.title = said
			}
			id := slug(said)
			if times := taken[id]; times > 0 {
				taken[id]++
				id += "-" + strconv.Itoa(times)
			}
			taken[id]++
			n.SetAttributeString("id", []byte(id))
		case *ast.Link:
			to, err := p.lead(root, string(n.Destination))
			if err != nil {
				return ast.WalkStop, err
			}
			n.Destination = []byte(to)
		case *ast.Image:
			to, err := p.lead(root, string(n.Destination))
			if err != nil {
				return ast.WalkStop, err
			}
			n.Destination = []byte(to)
			if strings.Contains(to, "://") {
				foreign = append(foreign, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, image := range foreign { // a badge; the site loads nothing from elsewhere
		image.Parent().ReplaceChild(image.Parent(), image, ast.NewString([]byte(plain(image, p.data)+" ")))
	}
	return err
}

// lead returns the target of a link on the site. A file that the site does not show is at the
// repository.
func (p *page) lead(root, to string) (string, error) {
	file, anchor, named := strings.Cut(to, "#")
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") || file == "" {
		return to, nil
	}
	target := path.Join(path.Dir(p.source), file)
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
		return "", fmt.Errorf("%s: the link %s leads to no file", p.source, to)
	}
	on := siteOf(target)
	if on == "" {
		return repository + target, nil
	}
	if named {
		anchor = "#" + anchor
	}
	return relative(p.to, on) + anchor, nil
}

// relative returns the way from a page of the site to a file of it.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}

// slug returns the name of a heading: that of GitHub.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.In(r, unicode.L, unicode.Nd) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// plain returns what a part of a page says, without its marks.
func plain(n ast.Node, data []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Value(data))
				if n.SoftLineBreak() || n.HardLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		case *ast.AutoLink:
			if entering {
				b.Write(n.Label(data))
			}
		case *ast.CodeBlock, *ast.FencedCodeBlock:
			if entering {
				b.Write(n.Lines().Value(data))
			}
		case *ast.Paragraph, *ast.ListItem, *ast.TextBlock, *extast.TableCell:
			if !entering {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// entries returns the sections of a page for the search.
func (p *page) entries() []entry {
	var out []entry
	for n := p.root.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			id, _ := h.AttributeString("id")
			e := entry{Page: p.title, Heading: plain(h, p.data), To: fmt.Sprintf("%s#%s", p.to, id)}
			if len(out) == 0 {
				e.Heading, e.To = "", p.to
			}
			out = append(out, e)
			continue
		}
		if len(out) > 0 {
			e := &out[len(out)-1]
			e.Text = strings.Join(strings.Fields(e.Text+" "+plain(n, p.data)), " ")
		}
	}
	return out
}

// contentsOf returns the contents: the pages in the order of docs/README.md.
func contentsOf(pages []*page) ([]chapter, error) {
	at := slices.IndexFunc(pages, func(p *page) bool { return p.source == "docs/README.md" })
	if at < 0 {
		return nil, fmt.Errorf("docs/README.md does not exist")
	}
	index := pages[at]
	out := []chapter{{Links: []link{{Title: "Overview", To: index.to}}}}
	listed := map[string]bool{index.to: true}
	err := ast.Walk(index.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				out = append(out, chapter{Title: plain(n, index.data)})
			}
		case *ast.Link:
			to, _, _ := strings.Cut(strings.TrimPrefix(string(n.Destination), relative(index.to, "")), "#")
			i := slices.IndexFunc(pages, func(p *page) bool { return p.to == to })
			if i >= 0 && !listed[to] {
				listed[to] = true
				last := &out[len(out)-1]
				last.Links = append(last.Links, link{Title: pages[i].title, To: to})
			}
		}
		return ast.WalkContinue, nil
	})
	return slices.DeleteFunc(out, func(c chapter) bool { return len(c.Links) == 0 }), err
}

// comments are what the renderer leaves of HTML. The pages have none but marks of the tools that
// write parts of them.
var comments = regexp.MustCompile(`(?s)<!--.*?-->\n?`)

// write renders a page into the site.
func (p *page) write(out string, contents []chapter) error {
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, p.data, p.root); err != nil {
		return fmt.Errorf("%s: %w", p.source, err)
	}
	text := comments.ReplaceAllString(body.String(), "")
	// A wide table scrolls by itself.
	text = strings.ReplaceAll(text, "<table>", `<div class="scroll" tabindex="0"><table>`)
	text = strings.ReplaceAll(text, "</table>", "</table></div>")
	text = strings.ReplaceAll(text, "<pre>", `<pre tabindex="0">`)
	view := struct {
		Title, Base   string
		Body          template.HTML
		Contents      []chapter
		Before, After *link
	}{Title: p.title, Base: relative(p.to, ""), Body: template.HTML(text)}
	var flat []link
	for _, c := range contents {
		here := chapter{Title: c.Title}
		for _, l := range c.Links {
			l.Here, l.To = l.To == p.to, relative(p.to, l.To)
			here.Links, flat = append(here.Links, l), append(flat, l)
		}
		view.Contents = append(view.Contents, here)
	}
	if i := slices.IndexFunc(flat, func(l link) bool { return l.Here }); i >= 0 {
		if i > 0 {
			view.Before = &flat[i-1]
		}
		if i+1 < len(flat) {
			view.After = &flat[i+1]
		}
	}
	var page bytes.Buffer
	if err := layout.Execute(&page, view); err != nil {
		return err
	}
	return write(filepath.Join(out, filepath.FromSlash(p.to)), page.Bytes())
}
