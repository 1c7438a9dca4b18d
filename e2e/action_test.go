package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// workflowStep is a step of a workflow or of an action.
type workflowStep struct {
	Name, Uses, If, Shell, Run string
	With, Env                  map[string]string
}

// The action does what the sample for GitHub does, which the script ci.txtar runs: the same steps.
// It has no outputs, in which a secret could be, and reads no input in a command: text that
// GitHub puts into a command can be a command.
func TestTheActionIsTheSample(t *testing.T) {
	t.Parallel()
	var action struct {
		Name, Description string
		Branding          map[string]string
		Inputs            map[string]struct {
			Description, Default string
			Required             bool
		}
		Runs struct {
			Using string
			Steps []workflowStep
		}
	}
	readYAML(t, "../action/action.yml", true, &action)
	var sample struct {
		Jobs map[string]struct{ Steps []workflowStep }
	}
	readYAML(t, "../templates/ci/github-actions.yml", false, &sample)
	script, err := os.ReadFile("../action/plan.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, plan, _ := strings.Cut(string(script), "\nset -e\n")

	steps := map[string]workflowStep{}
	for _, s := range action.Runs.Steps {
		steps[s.Name] = s
		if strings.Contains(s.Run, "${{") {
			t.Errorf("%s has an expression in a command:\n%s", s.Name, s.Run)
		}
		if s.Run != "" && s.Shell != "sh" {
			t.Errorf("%s runs in %q", s.Name, s.Shell)
		}
	}
	compared := 0
	for _, job := range []string{"plan", "apply", "drift"} {
		for _, s := range sample.Jobs[job].Steps {
			if s.Run == "" {
				continue
			}
			compared++
			got := steps[s.Name].Run
			switch s.Name {
			case "plan":
				if got != `sh "$GITHUB_ACTION_PATH/plan.sh"` {
					t.Errorf("plan runs %s", got)
				}
				got = plan
			case "validate", "drift":
				got = strings.ReplaceAll(got, `"$FILES"`, "topology/")
			}
			if got != s.Run {
				t.Errorf("%s of the action is\n%s\nand of the sample\n%s", s.Name, got, s.Run)
			}
			for name := range s.Env {
				if steps[s.Name].Env[name] == "" {
					t.Errorf("%s of the action lacks the variable %s", s.Name, name)
				}
			}
		}
	}
	if compared != 7 || action.Runs.Using != "composite" {
		t.Errorf("%d steps of the sample were compared with an action of kind %s", compared, action.Runs.Using)
	}
}

// The audit of the action leaves a file for code scanning, which takes no finding without a file of
// the repository; and it fails for a file that cannot be read, not for a finding.
func TestTheActionAudits(t *testing.T) {
	t.Parallel()
	var action struct {
		Runs struct{ Steps []workflowStep }
	}
	readYAML(t, "../action/action.yml", false, &action)
	i := slices.IndexFunc(action.Runs.Steps, func(s workflowStep) bool { return s.Name == "audit" })
	dir := t.TempDir()
	writeTo(t, dir+"/shop.json", `{"vhosts": [{"name": "/"}], "exchanges": [], "bindings": [], "queues": [{"name": "a",
		"vhost": "/", "durable": true, "auto_delete": false, "arguments": {"x-dead-letter-exchange": "gone"}}]}`)
	for file, fine := range map[string]bool{"shop.json": true, "gone.json": false} {
		c := exec.CommandContext(t.Context(), "sh", "-e", "-c", action.Runs.Steps[i].Run)
		c.Dir, c.Env = dir, append(os.Environ(), "DEFINITIONS="+file)
		if said, err := c.CombinedOutput(); (err == nil) != fine {
			t.Fatalf("%s: %v\n%s", file, err, said)
		}
		if !fine {
			continue
		}
		type location struct {
			PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
		}
		var log struct {
			Runs []struct {
				Results []struct{ Locations []location }
			}
		}
		data, err := os.ReadFile(dir + "/dlxctl.sarif")
		if err == nil {
			err = json.Unmarshal(data, &log)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(log.Runs) != 1 || len(log.Runs[0].Results) == 0 {
			t.Fatalf("the file has %+v", log)
		}
		for _, r := range log.Runs[0].Results {
			if len(r.Locations) != 1 || r.Locations[0].PhysicalLocation.ArtifactLocation.URI != file {
				t.Errorf("a finding is at %+v", r.Locations)
			}
		}
	}
}

// The hook of pre-commit runs a command that exists.
func TestThePreCommitHook(t *testing.T) {
	t.Parallel()
	var hooks []struct {
		ID, Name, Description, Entry, Language, Files string
		Args                                          []string
		PassFilenames                                 bool `yaml:"pass_filenames"`
	}
	readYAML(t, "../.pre-commit-hooks.yaml", true, &hooks)
	if len(hooks) != 1 || hooks[0].PassFilenames {
		t.Fatalf("the hooks are %+v", hooks)
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/topology", 0o700); err != nil {
		t.Fatal(err)
	}
	command := append(strings.Fields(hooks[0].Entry), hooks[0].Args...)
	const valid = "version: 1\nname: shop\nqueues: [{name: a, backoff: none}]\n"
	for text, fine := range map[string]bool{valid: true, "verson: 1\n": false} {
		writeTo(t, dir+"/topology/shop.yaml", text)
		c := exec.CommandContext(t.Context(), command[0], command[1:]...)
		c.Dir = dir
		if said, err := c.CombinedOutput(); (err == nil) != fine {
			t.Errorf("%q on %q: %v\n%s", command, text, err, said)
		}
	}
}

// readYAML reads a file into v. If strict, it fails for a key that v does not have.
func readYAML(t *testing.T, name string, strict bool, v any) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(strict)
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
