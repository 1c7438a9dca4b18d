package planview

// Document is a plan as WriteJSON writes it. docs/json.md lists its keys.
type Document = planJSON
