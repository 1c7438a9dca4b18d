package decode

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// layer is an encoding that was undone. redo applies it again.
type layer struct {
	name string
	redo func([]byte) ([]byte, error)
}

// unwrap undoes the encodings of a content-encoding, the last one first: that is the order in
// which they were applied. An encoding that cannot be undone ends it, with a note.
func (r *reading) unwrap(declared string) {
	names := strings.Split(declared, ",")
	if len(names) > maxLayers {
		r.note("content-encoding names more than %d encodings, and none was undone", maxLayers)
		return
	}
	size := len(r.body)
	for _, name := range slices.Backward(names) {
		name = strings.ToLower(strings.TrimSpace(name))
		if withoutEncoding(name) || len(r.body) == 0 {
			continue
		}
		out, l, err := undo(name, r.body, size)
		if err != nil {
			r.note("content-encoding %q was not undone: %v", name, err)
			return
		}
		r.peel(out, l)
	}
}

// withoutEncoding reports names that change nothing. Several clients put the character set there.
func withoutEncoding(name string) bool {
	switch name {
	case "", "identity", "none", "utf-8", "utf8", "us-ascii", "ascii", "binary", "8bit", "7bit":
		return true
	}
	return false
}

// peel takes the outermost layer away.
func (r *reading) peel(body []byte, l layer) {
	r.body = body
	r.layers = append(r.layers, l)
	r.step(l.name)
}

// unwrapUndeclared undoes gzip, zstd and base64 that no content-encoding declares, where that
// gives something better.
func (d *Decoder) unwrapUndeclared(r *reading, in Input, media string, params map[string]string) {
	for size := len(r.body); len(r.layers) < maxLayers; {
		name := compression(r.body)
		if name == "" {
			out, l, ok := undoBase64(r.body)
			if !ok || !better(out) && !d.isProtobufIn(r.body, out, in, media, params) {
				return
			}
			r.peel(out, l)
			continue
		}
		out, l, err := undo(name, r.body, size)
		if err != nil {
			if errors.Is(err, errBomb) {
				r.note("the body looks like %s and was not decoded: %v", name, err)
			}
			return
		}
		r.peel(out, l)
	}
}

// compression returns the compression whose first bytes the body has, or "".
func compression(body []byte) string {
	switch {
	case bytes.HasPrefix(body, []byte{0x1f, 0x8b, 8}):
		return "gzip"
	case bytes.HasPrefix(body, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	}
	return ""
}

// undo undoes one encoding of a body that was published with size bytes.
func undo(name string, body []byte, size int) ([]byte, layer, error) {
	l := layer{name: name}
	var from io.Reader
	var err error
	switch name {
	case "gzip", "x-gzip":
		l = layer{"gzip", func(b []byte) ([]byte, error) {
			return compress(b, func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil })
		}}
		from, err = gzip.NewReader(bytes.NewReader(body))
	case "deflate":
		if from, err = zlib.NewReader(bytes.NewReader(body)); err == nil {
			l.redo = func(b []byte) ([]byte, error) {
				return compress(b, func(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriter(w), nil })
			}
			break
		}
		// Many clients leave out the frame that the name stands for.
		from, err = flate.NewReader(bytes.NewReader(body)), nil
		l.redo = func(b []byte) ([]byte, error) {
			return compress(b, func(w io.Writer) (io.WriteCloser, error) {
				return flate.NewWriter(w, flate.DefaultCompression)
			})
		}
	case "zstd":
		return undoZstd(body, size)
	case "base64":
		out, l, ok := undoBase64(body)
		if !ok {
			return nil, l, errors.New("the body is not base64")
		}
		return out, l, nil
	default:
		return nil, l, errors.New("dlxctl does not know the encoding")
	}
	if err != nil {
		return nil, l, fmt.Errorf("the body is not %s", name)
	}
	out, err := readAll(from, size)
	if err != nil && !errors.Is(err, errBomb) {
		err = fmt.Errorf("the body is damaged or not %s: %w", name, err)
	}
	return out, l, err
}

func undoZstd(body []byte, size int) ([]byte, layer, error) {
	l := layer{"zstd", func(b []byte) ([]byte, error) {
		return compress(b, func(w io.Writer) (io.WriteCloser, error) {
			return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		})
	}}
	from, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(MaxBytes), zstd.WithDecoderMaxMemory(2*MaxBytes))
	if err != nil {
		return nil, l, errors.New("the body is not zstd")
	}
	defer from.Close()
	out, err := readAll(from, size)
	switch {
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, l, fmt.Errorf("%w: the body would need more than %d MiB", errBomb, MaxBytes>>20)
	case err != nil && !errors.Is(err, errBomb):
		return nil, l, fmt.Errorf("the body is damaged or not zstd: %w", err)
	}
	return out, l, err
}

// compress writes b through a compressor.
func compress(b []byte, open func(io.Writer) (io.WriteCloser, error)) ([]byte, error) {
	var out bytes.Buffer
	w, err := open(&out)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// undoBase64 decodes base64 of any alphabet, with padding or without.
func undoBase64(body []byte) ([]byte, layer, bool) {
	text := bytes.TrimSpace(body)
	if len(text) < 4 {
		return nil, layer{}, false
	}
	for _, e := range []*base64.Encoding{
		base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
	} {
		out := make([]byte, e.DecodedLen(len(text)))
		n, err := e.Decode(out, text)
		if err != nil {
			continue
		}
		out = out[:n]
		redo := func(b []byte) ([]byte, error) { return e.AppendEncode(nil, b), nil }
		if again, _ := redo(out); !bytes.Equal(again, body) {
			redo = func([]byte) ([]byte, error) {
				return nil, errors.New("the base64 of the body has line breaks or spaces that would be lost")
			}
		}
		return out, layer{"base64", redo}, true
	}
	return nil, layer{}, false
}

// better reports whether what base64 stands for says more than the base64: it is compressed,
// JSON, XML, or text that is too long to be a coincidence.
func better(decoded []byte) bool {
	const shortest = 12 // a random text that decodes to this many printable characters is rare
	if compression(decoded) != "" {
		return true
	}
	if begins(decoded, "{[") {
		if _, err := parseJSON(decoded); err == nil {
			return true
		}
	}
	return len(decoded) >= shortest && utf8.Valid(decoded) && controls(decoded) == 0
}

// begins reports whether the first character that is not a space is one of these.
func begins(body []byte, first string) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && strings.IndexByte(first, body[0]) >= 0
}
