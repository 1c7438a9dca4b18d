package audit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/goldentest"
)

func TestRealDefinitionsHaveTheseFindings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../testdata/real/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(summary(audit.Run(read(t, name+".json", string(data)))), "\n") + "\n"
			goldentest.Check(t, filepath.Join("testdata", "real", name+".txt"), []byte(got))
		})
	}
}
