package spec_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/spec"
)

// clusters reads a file of clusters, with one variable.
func clusters(text string) ([]spec.Cluster, error) {
	return spec.DecodeClusters(spec.Source{Name: "clusters.yaml", Data: []byte(text)}, func(name string) (string, bool) {
		return "s3cret", name == "PASSWORD"
	})
}

func TestClustersAreRead(t *testing.T) {
	t.Parallel()
	got, err := clusters(`
clusters:
  - name: prod
    url: amqps://ops:${PASSWORD}@rabbit.example.com/shop
    file: prod/topology.yaml
  - {name: "test / crm", url: "amqp://localhost", api: "http://ops:${PASSWORD}@localhost:1", vhost: crm, topology: crm}
`)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	prod, crm := got[0], got[1]
	if prod.Name != "prod" || prod.URL != "amqps://ops:s3cret@rabbit.example.com/shop" ||
		prod.ShownURL != "amqps://ops:${PASSWORD}@rabbit.example.com/shop" || prod.File != "prod/topology.yaml" ||
		prod.At("url").Line != 4 {
		t.Errorf("%+v", prod)
	}
	if crm.VHost != "crm" || crm.Topology != "crm" || crm.API != "http://ops:s3cret@localhost:1" ||
		crm.ShownAPI != "http://ops:${PASSWORD}@localhost:1" {
		t.Errorf("%+v", crm)
	}
}

// Each mistake is named with its place and a fix. No error has a password, nor has what is shown.
func TestMistakesInClusters(t *testing.T) {
	t.Parallel()
	const one = "clusters:\n  - name: a\n    url: amqp://localhost\n"
	for text, want := range map[string]string{
		"":                                   "clusters.yaml:1:1: the file declares nothing; write 'clusters:', and under it an entry",
		"- a":                                "clusters.yaml:1:1: the file is a list, not a mapping; write 'clusters:'",
		"cluster: []":                        `clusters.yaml:1:1: the file has no key "cluster"; did you mean "clusters"?`,
		"clusters: []":                       "clusters.yaml:1:11: clusters is empty; add an entry with name and url",
		"clusters: a":                        `clusters.yaml:1:11: clusters is the text "a", not a list`,
		"clusters: [{url: amqp://a}]":        "clusters.yaml:1:12: an entry of clusters has no name; add name: …",
		"clusters: [{name: a}]":              "clusters.yaml:1:12: an entry of clusters has no url; add url: …",
		one + "    vhots: x":                 `clusters.yaml:4:5: an entry of clusters has no key "vhots"; did you mean "vhost"?`,
		one + "    vhost: 7":                 `clusters.yaml:4:12: vhost is the number 7, not text; put it in quotes: "7"`,
		one + "    vhost: ''":                `clusters.yaml:4:12: vhost is ""; write a value, or remove the key`,
		one + "    file: x\n    topology: y": `clusters.yaml:5:15: topology is "y", but the file of the entry has the name; remove one of the two`,
		one + "  - {name: a, url: amqp://b}": `clusters.yaml:4:12: name is "a", as that of line 2; give each entry a name of its own`,
		one + "---\na: 1":                    "clusters.yaml:4:1: the file holds a second document; put all into one document",
		"clusters:\n  - {name: a, url: '${NONE}'}":                  "clusters.yaml:2:20: ",
		"clusters:\n  - {name: a, url: 'amqp://u:hunter2@b'}":       "clusters.yaml:2:20: url has a password in clear text; write it as a variable",
		"clusters:\n  - {name: a, url: 'amqp://u:${P:-hunter2}@b'}": "clusters.yaml:2:20: url has a password in clear text; write it as a variable",
		"clusters:\n  - {name: a, url: 'amqp://u:a@hunter2@b'}":     "clusters.yaml:2:20: url has a password in clear text; write it as a variable",
	} {
		_, err := clusters(text)
		problems, ok := errors.AsType[*spec.Error](err)
		if !ok || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %q", text, err, want)
			continue
		}
		for _, p := range problems.Problems {
			if p.Fix == "" && !strings.Contains(p.Msg, "; ") {
				t.Errorf("%q: no fix: %s", text, p)
			}
		}
	}
	// What a shell would change between double quotes is not shown.
	got, err := clusters("clusters: [{name: a, url: 'amqp://u:${PASSWORD}@b/$(id)'}]")
	if err != nil || got[0].ShownURL != "" {
		t.Errorf("%+v (%v)", got, err)
	}
}
