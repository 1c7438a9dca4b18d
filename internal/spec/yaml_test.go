package spec

import "gopkg.in/yaml.v3"

// unmarshal reads YAML without a thought.
func unmarshal(data []byte, v any) error { return yaml.Unmarshal(data, v) }
