package generate

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// ClusterReference names the RabbitmqCluster in which the operator creates objects. An empty
// Namespace is that of the manifests.
type ClusterReference struct {
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace,omitempty"`
}

// ParseClusterReference parses NAME or NAMESPACE/NAME.
func ParseClusterReference(s string) (ClusterReference, error) {
	namespace, name, found := strings.Cut(s, "/")
	if !found {
		namespace, name = "", s
	}
	if !plainResource.MatchString(name) || found && !plainResource.MatchString(namespace) {
		return ClusterReference{}, fmt.Errorf("%q names no RabbitmqCluster; write NAME or NAMESPACE/NAME", s)
	}
	return ClusterReference{Name: name, Namespace: namespace}, nil
}

// StepLabel is the label of each manifest. Its value is [StepNet], [StepPolicies] or
// [StepBusiness].
const StepLabel = "dlxctl-step"

// The steps in which manifests are applied. The operator declares objects in any order. So the
// manifests of the safety net are applied first, then the policies, which lead failures of live
// queues to it, and at last the business bindings, which bring messages: each step when the one
// before it is ready.
const (
	StepNet      = "safety-net"
	StepPolicies = "policies"
	StepBusiness = "business"
)

// Operator returns t as manifests of RabbitMQ's messaging topology operator, and the objects that
// are not among them because the operator cannot express them. External objects are not among them
// either. Manifests are in the order of their steps. Queues are retained when their manifests are
// deleted.
func Operator(t topology.Compiled, vhost string, cluster ClusterReference) ([]byte, []Inexpressible, error) {
	var missing []Inexpressible
	var all []manifest
	add := func(o topology.Object, reason string, s any) {
		if reason != "" {
			missing = append(missing, Inexpressible{o, reason})
			return
		}
		all = append(all, newManifest(o, vhost, s))
	}
	for _, e := range t.Exchanges {
		if !e.External {
			add(e, operatorExchangeReason(e), exchangeSpec{
				yamlText(e.Name), yamlText(vhost), yamlText(e.Type), e.Durable, e.AutoDelete,
				table(e.Arguments), cluster,
			})
		}
	}
	for _, q := range t.Queues {
		if !q.External {
			add(q, numberReason(q.Arguments), queueSpec{
				yamlText(q.Name), yamlText(vhost), yamlText(q.Type()), q.Durable, q.AutoDelete,
				table(q.Arguments), "retain", cluster,
			})
		}
	}
	bind := func(bindings []topology.Binding) {
		for _, b := range bindings {
			add(b, bindingReason(b), bindingSpec{
				yamlText(b.Source), yamlText(b.Destination), yamlText(b.DestinationType), yamlText(b.Key),
				yamlText(vhost), table(b.Arguments), cluster,
			})
		}
	}
	net, business := netAndBusiness(t.Bindings)
	bind(net)
	for _, p := range t.Policies {
		add(p, operatorPolicyReason(p), policySpec{
			yamlText(p.Name), yamlText(vhost), yamlText(p.Pattern), yamlText(p.ApplyTo), p.Priority,
			table(p.Definition), cluster,
		})
	}
	bind(business)
	var out bytes.Buffer
	out.WriteString(comment(header("operator", vhost, t, missing)))
	for _, m := range all {
		if err := m.write(&out); err != nil {
			return nil, nil, fmt.Errorf("write %s %q: %w", m.Kind, m.Metadata.Name, err)
		}
	}
	return out.Bytes(), missing, nil
}

type manifest struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       any      `yaml:"spec"`
}

// write appends the manifest as a document of YAML.
func (m manifest) write(out *bytes.Buffer) error {
	out.WriteString("---\n")
	encoder := yaml.NewEncoder(out)
	encoder.SetIndent(2)
	return encoder.Encode(m)
}

// yamlText is a string that is written in double quotes where the library would write what is read
// back as something else.
type yamlText string

// MarshalYAML returns the string, or a node with its style.
func (s yamlText) MarshalYAML() (any, error) {
	if text.YAMLMisread(string(s)) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: string(s), Style: yaml.DoubleQuotedStyle}, nil
	}
	return string(s), nil
}

// texts returns a canonical value with its strings as texts.
func texts(v any) any {
	switch v := v.(type) {
	case string:
		return yamlText(v)
	case []any:
		return text.Each(v, texts)
	case topology.Arguments:
		return table(v)
	}
	return v
}

// table returns arguments with their strings as texts. It is never nil.
func table(a topology.Arguments) map[yamlText]any {
	out := make(map[yamlText]any, len(a))
	for name, v := range a {
		out[yamlText(name)] = texts(v)
	}
	return out
}

type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

type exchangeSpec struct {
	Name       yamlText         `yaml:"name"`
	VHost      yamlText         `yaml:"vhost"`
	Type       yamlText         `yaml:"type"`
	Durable    bool             `yaml:"durable"`
	AutoDelete bool             `yaml:"autoDelete"`
	Arguments  map[yamlText]any `yaml:"arguments,omitempty"`
	Cluster    ClusterReference `yaml:"rabbitmqClusterReference"`
}

type queueSpec struct {
	Name           yamlText         `yaml:"name"`
	VHost          yamlText         `yaml:"vhost"`
	Type           yamlText         `yaml:"type,omitempty"`
	Durable        bool             `yaml:"durable"`
	AutoDelete     bool             `yaml:"autoDelete"`
	Arguments      map[yamlText]any `yaml:"arguments,omitempty"`
	DeletionPolicy yamlText         `yaml:"deletionPolicy"`
	Cluster        ClusterReference `yaml:"rabbitmqClusterReference"`
}

type bindingSpec struct {
	Source          yamlText         `yaml:"source"`
	Destination     yamlText         `yaml:"destination"`
	DestinationType yamlText         `yaml:"destinationType"`
	Key             yamlText         `yaml:"routingKey,omitempty"`
	VHost           yamlText         `yaml:"vhost"`
	Arguments       map[yamlText]any `yaml:"arguments,omitempty"`
	Cluster         ClusterReference `yaml:"rabbitmqClusterReference"`
}

type policySpec struct {
	Name       yamlText         `yaml:"name"`
	VHost      yamlText         `yaml:"vhost"`
	Pattern    yamlText         `yaml:"pattern"`
	ApplyTo    yamlText         `yaml:"applyTo"`
	Priority   int64            `yaml:"priority"`
	Definition map[yamlText]any `yaml:"definition"`
	Cluster    ClusterReference `yaml:"rabbitmqClusterReference"`
}

func newManifest(o topology.Object, vhost string, spec any) manifest {
	kinds := map[topology.Kind]string{
		topology.KindExchange: "Exchange", topology.KindQueue: "Queue",
		topology.KindBinding: "Binding", topology.KindPolicy: "Policy",
	}
	return manifest{
		APIVersion: "rabbitmq.com/v1beta1", Kind: kinds[o.Kind()], Spec: spec,
		Metadata: metadata{Name: resourceName(o, vhost), Labels: map[string]string{StepLabel: step(o)}},
	}
}

// step returns the step in which the manifest of an object is applied.
func step(o topology.Object) string {
	switch kind := o.Kind(); {
	case kind == topology.KindPolicy:
		return StepPolicies
	case kind == topology.KindBinding && !isNet(o):
		return StepBusiness
	}
	return StepNet
}

func operatorExchangeReason(e topology.Exchange) string {
	if e.Internal {
		return "it is internal, and the operator has no field for that"
	}
	return numberReason(e.Arguments)
}

func operatorPolicyReason(p topology.Policy) string {
	if !slices.Contains([]string{"queues", "classic_queues", "quorum_queues", "exchanges", "all"}, p.ApplyTo) {
		return fmt.Sprintf("it applies to %s, which the operator does not know", p.ApplyTo)
	}
	return numberReason(p.Definition)
}

// plainResource matches the names that Kubernetes accepts for a resource as they are, up to their
// length. None has two dashes in a row.
var plainResource = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*(\.[a-z0-9](-?[a-z0-9])*)*$`)

// notResource matches runs of what a resource's name cannot have, dots and dashes included.
var notResource = regexp.MustCompile(`[^a-z0-9]+`)

// longestResource is the longest name of a resource, in characters.
const longestResource = 253

// resourceName returns the name of the resource for an object. It depends on the virtual host and
// the object alone: a resource with another name is another resource. Different objects have
// different names.
func resourceName(o topology.Object, vhost string) string {
	name := o.ID().Name
	shown := name
	if b, ok := o.(topology.Binding); ok {
		shown = b.Source + "-to-" + b.Destination
	} else if vhost == "/" && len(name) <= longestResource && plainResource.MatchString(name) {
		return name
	}
	shown = strings.Trim(notResource.ReplaceAllString(strings.ToLower(shown), "-"), "-")
	if len(shown) > 60 {
		shown = strings.Trim(shown[:60], "-")
	}
	if shown == "" {
		shown = "x"
	}
	return shown + "--" + digest(vhost, name)
}
