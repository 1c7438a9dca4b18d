package cmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/internal/text"
)

// maxDefinitions is the size of the largest definitions file that is read, in bytes.
const maxDefinitions = 256 << 20

// readDefinitions reads definitions files and lists, and leaves the virtual hosts that --vhost
// names. Where the files name no virtual host, --vhost does.
func (a *app) readDefinitions(paths []string) ([]definitions.VHost, error) {
	var files []definitions.File
	for _, path := range paths {
		f, err := readDefinitionsFile(path, a.stdin)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	hosts, err := definitions.Read(files)
	if err != nil || a.conn.VHost == "" {
		return hosts, err
	}
	for _, h := range hosts {
		if h.Unnamed && len(hosts) == 1 {
			h.State.VHost = a.conn.VHost
		}
		if h.State.VHost == a.conn.VHost {
			return []definitions.VHost{h}, nil
		}
	}
	return nil, fmt.Errorf("the files have no virtual host %q; they have %s", a.conn.VHost, vhostNames(hosts))
}

// vhostNames lists virtual hosts for a message.
func vhostNames(hosts []definitions.VHost) string {
	names := text.Each(hosts, func(h definitions.VHost) string { return text.Name(h.State.VHost) })
	return strings.Join(names, ", ")
}

// readDefinitionsFile reads one file, or stdin for "-".
func readDefinitionsFile(path string, stdin io.Reader) (definitions.File, error) {
	name, from := strings.TrimPrefix(filepath.ToSlash(path), "./"), stdin
	if path == "-" {
		name = "stdin"
	} else {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return definitions.File{}, fmt.Errorf("file %s does not exist; 'rabbitmqctl export_definitions %s' writes it", path, path)
		}
		if err != nil {
			return definitions.File{}, fmt.Errorf("read %s: %w", path, reason(err))
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return definitions.File{}, fmt.Errorf("%s is a directory; name the definitions files in it, "+
				"or a directory of topology files with -f", path)
		}
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, maxDefinitions+1))
	if err != nil {
		return definitions.File{}, fmt.Errorf("read %s: %w", name, reason(err))
	}
	if len(data) > maxDefinitions {
		return definitions.File{}, fmt.Errorf("%s is larger than %d MiB; export one virtual host at a time", name,
			maxDefinitions>>20)
	}
	return definitions.File{Name: name, Data: data}, nil
}
