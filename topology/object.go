package topology

// Object is an [Exchange], a [Queue], a [Binding] or a [Policy]. No other package can
// implement it.
//
//sumtype:decl
type Object interface {
	// Kind returns the kind of the object.
	Kind() Kind
	// ID identifies the object within a virtual host.
	ID() Key
	// DisplayName returns the text by which plans and messages name the object: its name,
	// or [Binding.String] for a binding.
	DisplayName() string
	// Purpose returns the object's Label.
	Purpose() Label
	// Properties returns everything of the object that a plan shows and compares, without
	// its name and its Label, in a fixed order.
	Properties() []Property

	object()
}

// Property is one flag, argument or setting of an object. Value is canonical; see
// [Arguments].
type Property struct {
	Name  string
	Value any
}

// Properties returns the arguments in order.
func (a Arguments) Properties() []Property {
	var out []Property
	for _, name := range a.Names() {
		out = append(out, Property{name, a[name]})
	}
	return out
}

// Kind returns [KindExchange].
func (Exchange) Kind() Kind { return KindExchange }

// Kind returns [KindQueue].
func (Queue) Kind() Kind { return KindQueue }

// Kind returns [KindBinding].
func (Binding) Kind() Kind { return KindBinding }

// Kind returns [KindPolicy].
func (Policy) Kind() Kind { return KindPolicy }

// ID returns the kind and the name.
func (e Exchange) ID() Key { return Key{KindExchange, e.Name} }

// ID returns the kind and the name.
func (q Queue) ID() Key { return Key{KindQueue, q.Name} }

// ID returns the kind and [Binding.Identity].
func (b Binding) ID() Key { return Key{KindBinding, b.Identity()} }

// ID returns the kind and the name.
func (p Policy) ID() Key { return Key{KindPolicy, p.Name} }

// DisplayName returns the name.
func (e Exchange) DisplayName() string { return e.Name }

// DisplayName returns the name.
func (q Queue) DisplayName() string { return q.Name }

// DisplayName returns what [Binding.String] gives.
func (b Binding) DisplayName() string { return b.String() }

// DisplayName returns the name.
func (p Policy) DisplayName() string { return p.Name }

// Purpose returns the Label.
func (e Exchange) Purpose() Label { return e.Label }

// Purpose returns the Label.
func (q Queue) Purpose() Label { return q.Label }

// Purpose returns the Label.
func (b Binding) Purpose() Label { return b.Label }

// Purpose returns the Label.
func (p Policy) Purpose() Label { return p.Label }

// Properties returns the type, the flags and the arguments.
func (e Exchange) Properties() []Property {
	return append([]Property{
		{"type", e.Type}, {"durable", e.Durable}, {"auto-delete", e.AutoDelete}, {"internal", e.Internal},
	}, e.Arguments.Properties()...)
}

// Properties returns the flags and the arguments, the type among them.
func (q Queue) Properties() []Property {
	return append([]Property{
		{"durable", q.Durable}, {"auto-delete", q.AutoDelete}, {"exclusive", q.Exclusive},
	}, q.Arguments.Properties()...)
}

// Properties returns the arguments.
func (b Binding) Properties() []Property { return b.Arguments.Properties() }

// Properties returns the pattern, the kind of objects, the priority and the definition.
func (p Policy) Properties() []Property {
	return append([]Property{
		{"pattern", p.Pattern}, {"apply-to", p.ApplyTo}, {"priority", p.Priority},
	}, p.Definition.Properties()...)
}

func (Exchange) object() {}
func (Queue) object()    {}
func (Binding) object()  {}
func (Policy) object()   {}
