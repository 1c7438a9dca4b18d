//go:build js && wasm

// Command wasm is dlxctl in a browser: the worker of the page of the site calls its one function.
package main

import (
	"runtime/debug"
	"syscall/js"

	"github.com/dlxctl/dlxctl/internal/site"
)

// version is set when the site is built.
var version = "devel" //nolint:gochecknoglobals // the linker writes it

// main offers dlxctl(question, bytes): question is JSON, bytes a Uint8Array or undefined, and the
// result is JSON. See [site.Page.Answer].
func main() {
	debug.SetMemoryLimit(3 << 30) // a page has at most 4 GiB: from here on, memory matters more than time
	page := &site.Page{Version: version}
	js.Global().Set("dlxctl", js.FuncOf(func(_ js.Value, args []js.Value) any {
		var file []byte
		if len(args) > 1 && args[1].Truthy() {
			file = make([]byte, args[1].Get("length").Int())
			js.CopyBytesToGo(file, args[1])
		}
		return string(page.Answer([]byte(args[0].String()), file))
	}))
	select {}
}
