package plan

// Document is a plan as WriteJSON writes it. docs/json.md lists its keys.
type Document = planJSON
