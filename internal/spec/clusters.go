package spec

import (
	"fmt"
	"regexp"
	"strings"
)

// Cluster is an entry of a file that lists the virtual hosts of a page of the desk.
type Cluster struct {
	Pos Pos
	// Name is how the page calls it, and no other entry.
	Name string
	// URL and API are those of the broker, with the variables of the environment. ShownURL and
	// ShownAPI are as the file has them, for a command line in double quotes: they hold no value of a
	// variable, and no password.
	URL, API           string
	ShownURL, ShownAPI string
	// VHost is the virtual host. Empty: that of the topology file, or of the URL.
	VHost string
	// File is the path of the topology file or folder, as the entry has it. Empty: the dead-letter
	// queues are found on the broker.
	File string
	// Topology is the name of the topology, if the virtual host has several and File is empty.
	Topology string

	places map[string]Pos
}

// At returns the place of the value of a key, or that of the entry.
func (c Cluster) At(key string) Pos {
	if at, ok := c.places[key]; ok {
		return at
	}
	return c.Pos
}

func clusterFileKeys() []key {
	return []key{
		{"clusters", "The virtual hosts that the page shows.", true, list(object(clusterKeys()))},
	}
}

func clusterKeys() []key {
	return []key{
		{"name", "Name of the cluster, or of the virtual host on it, as the page shows it.", true, anyText()},
		{"url", "AMQP URL of the broker. Its password must be a ${VAR} without a default.", true, anyText()},
		{"api", "URL of the management API. Default: host and credentials of url.", false, anyText()},
		{"vhost", "Virtual host. Default: that of the topology file, or of url.", false, anyText()},
		{"file", "Topology file, or a folder of them, relative to this file. Default: the dead-letter queues are found on the broker.", false, anyText()},
		{"topology", "Name of the topology, if the virtual host has several and the entry has no file.", false, anyText()},
	}
}

// ClustersSchema returns the JSON Schema of files that list clusters.
func ClustersSchema() []byte { return schema("dlxctl clusters", clusterFileKeys()) }

// DecodeClusters reads a file that lists clusters. lookup gives environment variables. The error is
// an [*Error] with every problem of the file.
func DecodeClusters(f Source, lookup func(string) (string, bool)) ([]Cluster, error) {
	d := newDecoder("", lookup)
	d.file, d.begin = f.Name, "write 'clusters:', and under it an entry with name and url for each virtual host"
	var out []Cluster
	if root := d.parse(f); root != nil {
		file := d.fields(root, "the file", clusterFileKeys(), strings.HasPrefix)
		entries := d.list(file, "clusters")
		if v, ok := file.values["clusters"]; ok && len(entries) == 0 && len(d.problems) == 0 {
			d.problem(d.at(v.value), "clusters is empty", "add an entry with name and url")
		}
		names := map[string]Pos{}
		for _, n := range entries {
			c := d.cluster(d.fields(n, "an entry of clusters", clusterKeys(), nil))
			if first, twice := names[c.Name]; twice && c.Name != "" {
				d.problem(c.At("name"), fmt.Sprintf("name is %q, as that of line %d", c.Name, first.Line),
					"give each entry a name of its own")
			}
			names[c.Name] = c.At("name")
			out = append(out, c)
		}
	}
	if len(d.problems) > 0 {
		return nil, &Error{Problems: byPlace(d.problems)}
	}
	return out, nil
}

// cluster reads an entry.
func (d *decoder) cluster(f fields) Cluster {
	c := Cluster{Pos: d.at(f.node), places: map[string]Pos{}}
	for name := range f.values {
		c.places[name] = d.pos(f, name)
	}
	for name, into := range map[string]*string{
		"name": &c.Name, "url": &c.URL, "api": &c.API, "vhost": &c.VHost, "file": &c.File, "topology": &c.Topology,
	} {
		text, ok := d.text(f, name)
		if *into = text; ok && strings.TrimSpace(text) == "" {
			d.problem(d.pos(f, name), fmt.Sprintf("%s is %q", name, text), "write a value, or remove the key")
		}
	}
	if c.File != "" && c.Topology != "" {
		d.problem(d.pos(f, "topology"), fmt.Sprintf("topology is %q, but the file of the entry has the name", c.Topology),
			"remove one of the two")
	}
	c.ShownURL, c.ShownAPI = d.shownURL(f, "url"), d.shownURL(f, "api")
	return c
}

// inShell are texts that a shell leaves as they are between double quotes, but for its variables.
var inShell = regexp.MustCompile(`^([A-Za-z0-9:/@._%?&=,+~;\[\]-]|\$\{[A-Za-z_][A-Za-z0-9_]*\})*$`)

// oneVariable is a variable without a default.
var oneVariable = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)

// shownURL returns a URL as the file has it. It refuses a password in clear text, which the page
// would show to each person who may read. Empty: the URL cannot be shown.
func (d *decoder) shownURL(f fields, name string) string {
	v, ok := f.values[name]
	if !ok {
		return ""
	}
	raw := v.value.Value
	_, rest, _ := strings.Cut(raw, "://")
	authority, _, _ := strings.Cut(rest, "/")
	user := authority[:max(0, strings.LastIndex(authority, "@"))]
	if _, password, has := strings.Cut(user, ":"); has && !oneVariable.MatchString(password) {
		d.problem(d.at(v.value), name+" has a password in clear text", "write it as a variable of the environment, such as ${PASSWORD}")
		return ""
	}
	if !inShell.MatchString(raw) {
		return ""
	}
	return raw
}
