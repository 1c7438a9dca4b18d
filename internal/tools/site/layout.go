package main

import "html/template"

// layout is the page around a text of the documentation. Without scripts it has all but the search.
var layout = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}} · dlxctl</title>
<link rel="icon" href="{{.Base}}icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{{.Base}}style.css">
<link rel="stylesheet" href="{{.Base}}site.css">
<script type="module" src="{{.Base}}search.js"></script>
</head>
<body data-base="{{.Base}}">
<a class="skip" href="#main">Skip to the content</a>
<header class="top">
  <a class="brand" href="{{.Base}}index.html">dlxctl</a>
  <nav aria-label="Pages">
    <a href="{{.Base}}index.html">Audit</a>
    <a href="{{.Base}}docs/index.html" aria-current="true">Documentation</a>
  </nav>
  <div class="find" role="search" hidden>
    <input type="search" id="search" placeholder="Search" aria-label="Search the documentation" autocomplete="off" spellcheck="false">
    <ul id="hits" class="hits" aria-label="Found" hidden></ul>
  </div>
</header>
<main class="docs">
<article id="main" tabindex="-1">
<p class="to-contents"><a href="#contents">All pages</a></p>
{{.Body}}
<nav class="steps" aria-label="Next pages">
{{with .Before}}<a href="{{.To}}">← {{.Title}}</a>{{end}}
{{with .After}}<a class="after" href="{{.To}}">{{.Title}} →</a>{{end}}
</nav>
</article>
<nav class="contents" id="contents" aria-label="Contents">
{{range .Contents}}{{with .Title}}<h2>{{.}}</h2>
{{end}}<ul>
{{range .Links}}<li><a href="{{.To}}"{{if .Here}} aria-current="page"{{end}}>{{.Title}}</a></li>
{{end}}</ul>
{{end}}</nav>
</main>
<footer class="bottom"><span>dlxctl finds, repairs and runs retries and dead-lettering on RabbitMQ.</span>
<a href="{{.Base}}NOTICE.txt">Licenses</a></footer>
<div id="announce" class="unseen" role="status" aria-live="polite"></div>
</body>
</html>
`))
