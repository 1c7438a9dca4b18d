package plan

// The phases whose order tests compare.
const (
	PhaseBindSafetyNet = phaseBindSafetyNet
	PhaseAttach        = phaseAttach
	PhaseBindExchanges = phaseBindExchanges
	PhaseUnbind        = phaseUnbind
	PhaseReroute       = phaseReroute
)
