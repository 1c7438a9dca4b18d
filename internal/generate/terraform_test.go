package generate_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/topology"
)

// evaluated is a module of Terraform while a test reads it.
type evaluated struct {
	decoded
	context *hcl.EvalContext
	schemas map[string]schema
	faults  []string
}

// readModule returns the objects that the provider creates for a module, and what is wrong with the
// module by the schema of the provider.
func readModule(data []byte, vhost string) (decoded, error) {
	file, diagnostics := hclparse.NewParser().ParseHCL(data, "main.tf")
	if diagnostics.HasErrors() {
		return decoded{}, diagnostics
	}
	known, err := schemas("terraform")
	if err != nil {
		return decoded{}, err
	}
	body := file.Body.(*hclsyntax.Body)
	m := evaluated{schemas: known, context: &hcl.EvalContext{
		Variables: named(body), Functions: map[string]function.Function{"jsonencode": stdlib.JSONEncodeFunc},
	}}
	for _, block := range body.Blocks {
		if block.Type == "resource" && block.Labels[0] != "terraform_data" {
			m.resource(block, vhost)
		}
	}
	if len(m.faults) > 0 {
		return decoded{}, fmt.Errorf("%s", strings.Join(m.faults, "\n"))
	}
	return m.decoded, nil
}

// named returns the names of the resources of a module, for references to them.
func named(body *hclsyntax.Body) map[string]cty.Value {
	labels := map[string]map[string]cty.Value{}
	for _, block := range body.Blocks {
		if block.Type != "resource" || block.Body.Attributes["name"] == nil {
			continue
		}
		name, _ := block.Body.Attributes["name"].Expr.Value(nil)
		if labels[block.Labels[0]] == nil {
			labels[block.Labels[0]] = map[string]cty.Value{}
		}
		labels[block.Labels[0]][block.Labels[1]] = cty.ObjectVal(map[string]cty.Value{"name": name})
	}
	out := map[string]cty.Value{}
	for kind, of := range labels {
		out[kind] = cty.ObjectVal(of)
	}
	return out
}

func (m *evaluated) resource(block *hclsyntax.Block, vhost string) {
	kind, label := block.Labels[0], block.Labels[1]
	values := m.values(block.Body)
	for _, problem := range m.schemas[kind].problems(values) {
		m.faults = append(m.faults, fmt.Sprintf("%s %s: %s", kind, label, problem))
	}
	if !hclsyntax.ValidIdentifier(label) || values["vhost"] != vhost {
		m.faults = append(m.faults, fmt.Sprintf("%s %q in the virtual host %q", kind, label, values["vhost"]))
	}
	m.labels = append(m.labels, kind+" "+label)
	flat := map[string]any{}
	for name, v := range values {
		if inner, ok := v.(map[string]any); ok && m.schemas[kind][name].Block != nil {
			for name, v := range inner {
				flat[strings.ReplaceAll(name, "_", "")] = v
			}
			continue
		}
		flat[strings.ReplaceAll(name, "_", "")] = v
	}
	arguments, err := providerArguments(flat)
	if err != nil {
		m.faults = append(m.faults, fmt.Sprintf("%s %s: %v", kind, label, err))
	}
	m.add(kind, func(name string) any { return flat[name] }, arguments)
}

// providerArguments returns the arguments, or the definition of a policy, that the provider sends:
// strings of a definition that are integers become integers.
func providerArguments(flat map[string]any) (topology.Arguments, error) {
	if text, ok := flat["argumentsjson"].(string); ok {
		var v map[string]any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, err
		}
		return args(v)
	}
	definition, ok := flat["definition"].(map[string]any)
	if !ok {
		return args(flat["arguments"])
	}
	for name, v := range definition {
		if n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64); err == nil {
			definition[name] = n
		}
	}
	return args(definition)
}

// values evaluates the attributes and blocks of a resource, without those that every resource has.
func (m *evaluated) values(body *hclsyntax.Body) map[string]any {
	out := map[string]any{}
	for name, attribute := range body.Attributes {
		if name == "depends_on" {
			continue
		}
		v, diagnostics := attribute.Expr.Value(m.context)
		if diagnostics.HasErrors() {
			m.faults = append(m.faults, diagnostics.Error())
			continue
		}
		data, err := ctyjson.Marshal(v, v.Type())
		if err != nil {
			m.faults = append(m.faults, err.Error())
			continue
		}
		var plain any
		if err := json.Unmarshal(data, &plain); err != nil {
			m.faults = append(m.faults, err.Error())
		}
		out[name] = plain
	}
	for _, block := range body.Blocks {
		if block.Type != "lifecycle" {
			out[block.Type] = m.values(block.Body)
		}
	}
	return out
}

// needed returns, by the address of each resource of a module, those that it depends on, directly
// or not.
func needed(t *testing.T, module []byte) map[string]map[string]bool {
	t.Helper()
	file, diagnostics := hclparse.NewParser().ParseHCL(module, "main.tf")
	if diagnostics.HasErrors() {
		t.Fatal(diagnostics)
	}
	direct, out := map[string][]string{}, map[string]map[string]bool{}
	for _, block := range file.Body.(*hclsyntax.Body).Blocks {
		if block.Type != "resource" {
			continue
		}
		address := strings.Join(block.Labels, ".")
		out[address] = map[string]bool{}
		_ = hclsyntax.VisitAll(block.Body, func(n hclsyntax.Node) hcl.Diagnostics {
			if on, ok := n.(*hclsyntax.ScopeTraversalExpr); ok {
				direct[address] = append(direct[address],
					on.Traversal.RootName()+"."+on.Traversal[1].(hcl.TraverseAttr).Name)
			}
			return nil
		})
	}
	for address, needs := range out {
		for todo := slices.Clone(direct[address]); len(todo) > 0; todo = todo[1:] {
			if !needs[todo[0]] {
				needs[todo[0]] = true
				todo = append(todo, direct[todo[0]]...)
			}
		}
	}
	return out
}

// A policy leads the failures of a live queue to the safety net, and a business binding brings
// messages to queues that need both.
func TestTerraformBringsMessagesOnlyWhenTheSafetyNetExists(t *testing.T) {
	t.Parallel()
	for _, c := range []topology.Compiled{shop(t), byPolicy(t)} {
		module, missing := generate.Terraform(c, "/")
		if len(missing) > 0 {
			t.Errorf("the module lacks %v", missing)
		}
		needs, steps := needed(t, module), map[string][]string{}
		for address := range needs {
			kind, label, _ := strings.Cut(address, ".")
			generated := strings.HasPrefix(label, "shop")
			switch {
			case needs[address][address]:
				t.Errorf("%s depends on itself", address)
			case kind == "rabbitmq_policy":
				steps[generate.StepPolicies] = append(steps[generate.StepPolicies], address)
			case kind == "rabbitmq_queue" || generated:
				steps[generate.StepNet] = append(steps[generate.StepNet], address)
			case kind == "rabbitmq_binding":
				steps[generate.StepBusiness] = append(steps[generate.StepBusiness], address)
			}
		}
		if len(steps[generate.StepNet]) == 0 || len(steps[generate.StepPolicies]) != len(c.Policies) ||
			len(steps[generate.StepBusiness]) == 0 {
			t.Errorf("resources: %v", steps)
		}
		for step, first := range map[string][]string{
			generate.StepPolicies: steps[generate.StepNet],
			generate.StepBusiness: slices.Concat(steps[generate.StepNet], steps[generate.StepPolicies]),
		} {
			for _, address := range steps[step] {
				for _, other := range first {
					if !needs[address][other] {
						t.Errorf("%s does not wait for %s", address, other)
					}
				}
			}
		}
	}
}

func TestTerraformRefusesToDestroyQueues(t *testing.T) {
	t.Parallel()
	module, _ := generate.Terraform(shop(t), "/")
	queues := strings.Count(string(module), `resource "rabbitmq_queue"`)
	if protected := strings.Count(string(module), "prevent_destroy = true"); queues != 11 || protected != queues {
		t.Errorf("%d queues, %d protected; want 11 and 11", queues, protected)
	}
}
