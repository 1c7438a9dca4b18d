package generate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"golang.org/x/text/unicode/norm"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Terraform returns t as a module of Terraform, for the provider cyrilgdn/rabbitmq, and the objects
// that the module lacks because the provider cannot express them. External objects are not in it.
//
// Bindings and dead-letter exchanges refer to other resources. Policies, which lead failures of
// live queues to the safety net, depend on the whole of it, and business bindings depend on both.
// So Terraform creates what keeps a failed message before it brings messages, and destroys it after
// the policies. Terraform replaces a queue whose arguments change, with the messages in it;
// prevent_destroy refuses that.
func Terraform(t topology.Compiled, vhost string) ([]byte, []Inexpressible) {
	m := module{vhost: vhost, file: hclwrite.NewEmptyFile(), exchanges: map[string]string{}, queues: map[string]string{}}
	m.require()
	for _, e := range t.Exchanges {
		if !e.External {
			m.exchange(e)
		}
	}
	for _, q := range t.Queues {
		if !q.External {
			m.queue(q)
		}
	}
	net, business := netAndBusiness(t.Bindings)
	for _, b := range net {
		m.binding(b)
	}
	m.barrier("safety_net")
	for _, p := range t.Policies {
		m.policy(p)
	}
	m.barrier("dead_lettering")
	for _, b := range business {
		m.binding(b)
	}
	head := comment(header("terraform", vhost, t, m.missing))
	return append([]byte(head+"\n"), hclwrite.Format(m.file.Bytes())...), m.missing
}

// module is the Terraform module while it is written.
type module struct {
	vhost string
	file  *hclwrite.File
	// exchanges and queues are the labels of the resources in the module, by name.
	exchanges, queues map[string]string
	// awaited are the resources that the next barrier waits for.
	awaited []hclwrite.Tokens
	// after is the last barrier, nil before the first one.
	after   hclwrite.Tokens
	missing []Inexpressible
}

func (m *module) require() {
	terraform := m.file.Body().AppendNewBlock("terraform", nil).Body()
	terraform.SetAttributeValue("required_version", cty.StringVal(">= 1.4"))
	providers := terraform.AppendNewBlock("required_providers", nil).Body()
	providers.SetAttributeValue("rabbitmq", cty.ObjectVal(map[string]cty.Value{
		"source": cty.StringVal("cyrilgdn/rabbitmq"), "version": cty.StringVal(">= 1.8"),
	}))
}

// resource appends an empty resource and returns its body.
func (m *module) resource(kind, label string) *hclwrite.Body {
	m.file.Body().AppendNewline()
	return m.file.Body().AppendNewBlock("resource", []string{kind, label}).Body()
}

// block appends a block after an empty line and returns its body.
func (m *module) block(body *hclwrite.Body, name string) *hclwrite.Body {
	body.AppendNewline()
	return body.AppendNewBlock(name, nil).Body()
}

// lack notes that the module lacks an object, unless the reason is empty, and reports whether it
// does.
func (m *module) lack(o topology.Object, reason string) bool {
	if reason != "" {
		m.missing = append(m.missing, Inexpressible{o, reason})
	}
	return reason != ""
}

func (m *module) exchange(e topology.Exchange) {
	if m.lack(e, m.exchangeReason(e)) {
		return
	}
	label := terraformLabel(e.Name)
	m.exchanges[e.Name] = label
	body := m.resource("rabbitmq_exchange", label)
	m.identify(body, e.Name)
	settings := m.block(body, "settings")
	settings.SetAttributeValue("type", cty.StringVal(e.Type))
	settings.SetAttributeValue("durable", cty.BoolVal(e.Durable))
	settings.SetAttributeValue("auto_delete", cty.BoolVal(e.AutoDelete))
	if len(e.Arguments) > 0 {
		settings.SetAttributeRaw("arguments", m.object(e.Arguments))
	}
	m.note(e, "rabbitmq_exchange", label)
}

// exchangeReason returns why the provider cannot express an exchange, or the empty string.
func (m *module) exchangeReason(e topology.Exchange) string {
	switch name := notText(e.Arguments); {
	case e.Internal:
		return "it is internal, and the provider has no attribute for that"
	case name != "":
		return fmt.Sprintf("its argument %q is not a string, and the provider sends arguments of exchanges as strings", name)
	}
	return m.nameReason(e.Name, e.Arguments)
}

// nameReason returns why the provider cannot express an exchange, queue or policy with this name
// and these arguments, or the empty string.
func (m *module) nameReason(name string, args topology.Arguments) string {
	switch {
	case strings.Contains(name, "@"):
		return "its name contains @, with which the provider separates the name from the virtual host"
	case strings.Contains(m.vhost, "@"):
		return "the virtual host contains @, with which the provider separates the name from the virtual host"
	case !isNFC([]any{m.vhost, name, args}):
		return notNFC
	}
	return ""
}

// notNFC is the reason for text that Terraform would change.
const notNFC = "it has text that is not in Unicode normal form C, which Terraform changes"

// notText returns the name of an argument that is not a string, or the empty string.
func notText(args topology.Arguments) string {
	for _, name := range args.Names() {
		if _, ok := args[name].(string); !ok {
			return name
		}
	}
	return ""
}

// isNFC reports whether all texts in v are in Unicode normal form C.
func isNFC(v any) bool {
	switch v := v.(type) {
	case string:
		return norm.NFC.IsNormalString(v)
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !isNFC(e) })
	case topology.Arguments:
		for name, e := range v {
			if !isNFC(name) || !isNFC(e) {
				return false
			}
		}
	}
	return true
}

func (m *module) queue(q topology.Queue) {
	if m.lack(q, cmp.Or(m.nameReason(q.Name, q.Arguments), jsonReason(q.Arguments))) {
		return
	}
	label := terraformLabel(q.Name)
	m.queues[q.Name] = label
	body := m.resource("rabbitmq_queue", label)
	m.identify(body, q.Name)
	settings := m.block(body, "settings")
	settings.SetAttributeValue("durable", cty.BoolVal(q.Durable))
	settings.SetAttributeValue("auto_delete", cty.BoolVal(q.AutoDelete))
	m.arguments(settings, q.Arguments)
	m.block(body, "lifecycle").SetAttributeValue("prevent_destroy", cty.True)
	m.note(q, "rabbitmq_queue", label)
}

func (m *module) binding(b topology.Binding) {
	if m.lack(b, m.bindingReason(b)) {
		return
	}
	label := bindingLabel(b)
	body := m.resource("rabbitmq_binding", label)
	body.SetAttributeValue("vhost", cty.StringVal(m.vhost))
	body.SetAttributeRaw("source", reference("rabbitmq_exchange", m.exchanges, b.Source))
	if b.DestinationType == topology.ToExchange {
		body.SetAttributeRaw("destination", reference("rabbitmq_exchange", m.exchanges, b.Destination))
	} else {
		body.SetAttributeRaw("destination", reference("rabbitmq_queue", m.queues, b.Destination))
	}
	body.SetAttributeValue("destination_type", cty.StringVal(b.DestinationType))
	if b.Key != "" {
		body.SetAttributeValue("routing_key", cty.StringVal(b.Key))
	}
	m.arguments(body, b.Arguments)
	m.wait(body)
	m.note(b, "rabbitmq_binding", label)
}

// bindingReason returns why the provider cannot express a binding, or the empty string.
func (m *module) bindingReason(b topology.Binding) string {
	if strings.Contains(b.Source+b.Destination, "/") {
		return "a name in it contains /, with which the provider separates the parts of a binding"
	}
	if !isNFC([]any{m.vhost, b.Source, b.Destination, b.Key, b.Arguments}) {
		return notNFC
	}
	return cmp.Or(bindingReason(b), jsonReason(b.Arguments))
}

// jsonReason returns why Terraform's jsonencode cannot express arguments, or the empty string. It
// brings the JSON into Unicode normal form C. A mark after <, > or &, which jsonencode writes as an
// escape, would change the escape.
func jsonReason(args topology.Arguments) string {
	if reason := numberReason(args); reason != "" {
		return reason
	}
	if data, err := json.Marshal(args); err != nil || !norm.NFC.IsNormal(data) {
		return notNFC
	}
	return ""
}

func (m *module) policy(p topology.Policy) {
	if m.lack(p, cmp.Or(policyReason(p), m.nameReason(p.Name, p.Definition))) {
		return
	}
	label := terraformLabel(p.Name)
	body := m.resource("rabbitmq_policy", label)
	m.identify(body, p.Name)
	settings := m.block(body, "policy")
	settings.SetAttributeValue("pattern", cty.StringVal(p.Pattern))
	settings.SetAttributeValue("priority", cty.NumberIntVal(p.Priority))
	settings.SetAttributeValue("apply_to", cty.StringVal(p.ApplyTo))
	definition := topology.Arguments{}
	for name, v := range p.Definition {
		if n, ok := v.(int64); ok {
			v = strconv.FormatInt(n, 10) // the provider turns it into a number again
		}
		definition[name] = v
	}
	settings.SetAttributeRaw("definition", m.object(definition))
	m.wait(body)
	m.note(p, "rabbitmq_policy", label)
}

// policyReason returns why the provider cannot express the definition of a policy, or the empty
// string.
func policyReason(p topology.Policy) string {
	for _, name := range p.Definition.Names() {
		switch v := p.Definition[name].(type) {
		case string:
			if _, err := strconv.ParseInt(v, 10, 64); err == nil {
				return fmt.Sprintf("%q is the string %q, which the provider sends as a number", name, v)
			}
		case int64:
		default:
			return fmt.Sprintf("%q is neither a string nor an integer, and the provider knows only these", name)
		}
	}
	if !isNFC(p.Pattern) {
		return notNFC
	}
	return numberReason(p.Definition)
}

// barrier appends a resource that depends on all that was noted since the last barrier. Later
// resources wait for it. Where nothing was noted, the last barrier stays.
func (m *module) barrier(label string) {
	if len(m.awaited) == 0 {
		return
	}
	body := m.resource("terraform_data", label)
	newline := &hclwrite.Token{Type: hclsyntax.TokenNewline, Bytes: []byte("\n")}
	list := hclwrite.Tokens{{Type: hclsyntax.TokenOBrack, Bytes: []byte("[")}, newline}
	for _, resource := range m.awaited {
		list = append(append(list, resource...), &hclwrite.Token{Type: hclsyntax.TokenComma, Bytes: []byte(",")}, newline)
	}
	body.SetAttributeRaw("depends_on", append(list, &hclwrite.Token{Type: hclsyntax.TokenCBrack, Bytes: []byte("]")}))
	m.after, m.awaited = address("terraform_data", label), nil
}

// wait makes a resource depend on the last barrier.
func (m *module) wait(body *hclwrite.Body) {
	if m.after != nil {
		body.SetAttributeRaw("depends_on", hclwrite.TokensForTuple([]hclwrite.Tokens{m.after}))
	}
}

// note remembers a resource for the next barrier if business bindings need it.
func (m *module) note(o topology.Object, kind, label string) {
	if isNet(o) {
		m.awaited = append(m.awaited, address(kind, label))
	}
}

// address returns the address of a resource.
func address(kind, label string) hclwrite.Tokens {
	return hclwrite.TokensForTraversal(hcl.Traversal{hcl.TraverseRoot{Name: kind}, hcl.TraverseAttr{Name: label}})
}

func (m *module) identify(body *hclwrite.Body, name string) {
	body.SetAttributeValue("name", cty.StringVal(name))
	body.SetAttributeValue("vhost", cty.StringVal(m.vhost))
}

// arguments writes the arguments of a queue or binding, if it has any. Where all are strings, they
// go into the attribute arguments, otherwise into arguments_json: the provider chooses in this
// way when it imports a queue, and any other choice would replace the imported queue.
func (m *module) arguments(body *hclwrite.Body, args topology.Arguments) {
	switch {
	case len(args) == 0:
	case notText(args) == "":
		body.SetAttributeRaw("arguments", m.object(args))
	default:
		body.SetAttributeRaw("arguments_json", hclwrite.TokensForFunctionCall("jsonencode", m.object(args)))
	}
}

// object returns arguments as an object of HCL. A dead-letter exchange in the module becomes a
// reference, so that it exists before the queue. All names are quoted: the library takes some names
// for identifiers that its own parser refuses, such as those that begin with a byte order mark.
func (m *module) object(args topology.Arguments) hclwrite.Tokens {
	var attributes []hclwrite.ObjectAttrTokens
	for _, name := range args.Names() {
		value := m.value(args[name])
		if target, ok := args[name].(string); ok && name == topology.ArgDeadLetterExchange {
			value = reference("rabbitmq_exchange", m.exchanges, target)
		}
		attributes = append(attributes, hclwrite.ObjectAttrTokens{
			Name: hclwrite.TokensForValue(cty.StringVal(name)), Value: value,
		})
	}
	return hclwrite.TokensForObject(attributes)
}

// value returns a canonical value in HCL.
func (m *module) value(v any) hclwrite.Tokens {
	switch v := v.(type) {
	case string:
		return hclwrite.TokensForValue(cty.StringVal(v))
	case bool:
		return hclwrite.TokensForValue(cty.BoolVal(v))
	case int64:
		return hclwrite.TokensForValue(cty.NumberIntVal(v))
	case float64:
		return hclwrite.TokensForValue(cty.NumberFloatVal(v))
	case []any:
		return hclwrite.TokensForTuple(text.Each(v, m.value))
	case topology.Arguments:
		return m.object(v)
	}
	return hclwrite.TokensForValue(cty.NullVal(cty.DynamicPseudoType))
}

// reference returns the name of a resource in the module as a reference to it, and any other name
// as a string.
func reference(kind string, labels map[string]string, name string) hclwrite.Tokens {
	label, ok := labels[name]
	if !ok {
		return hclwrite.TokensForValue(cty.StringVal(name))
	}
	return hclwrite.TokensForTraversal(hcl.Traversal{
		hcl.TraverseRoot{Name: kind}, hcl.TraverseAttr{Name: label}, hcl.TraverseAttr{Name: "name"},
	})
}

// plainLabel matches the names that become labels by writing each dot as two underscores. No two
// of them become the same label, and none becomes one with three underscores in a row.
var plainLabel = regexp.MustCompile(`^[A-Za-z](-|\.?[A-Za-z0-9]|_[A-Za-z0-9-])*$`)

// terraformLabel returns the label of the resource for an object with this name. It depends on the
// name alone: Terraform destroys a resource whose label changes, and the queue with it. Different
// names have different labels.
func terraformLabel(name string) string {
	if plainLabel.MatchString(name) {
		return strings.ReplaceAll(name, ".", "__")
	}
	return readable(name) + "___" + digest(name)
}

// bindingLabel returns the label of the resource for a binding. It depends on the binding alone.
func bindingLabel(b topology.Binding) string {
	return readable(b.Source) + "-to-" + readable(b.Destination) + "___" + digest(b.Identity())
}

// unreadable matches runs of underscores and of what a label cannot have.
var unreadable = regexp.MustCompile(`[^A-Za-z0-9-]+`)

// readable returns the beginning of a name in the characters of a label.
func readable(name string) string {
	name = strings.Trim(unreadable.ReplaceAllString(name, "_"), "_")
	if len(name) > 60 {
		name = name[:60]
	}
	if name == "" || name[0] == '-' || '0' <= name[0] && name[0] <= '9' {
		name = "x" + name
	}
	return name
}
