package main

import "regexp"

// area is a promise, and the tests that hold it.
type area struct {
	promise string
	// tests are regular expressions for names as processor.TestOutages. A test is in
	// the first area of which one fits.
	tests []string
}

// has reports whether the test is one of the area's.
func (a area) has(name string) bool {
	for _, expr := range a.tests {
		if regexp.MustCompile(expr).MatchString(name) {
			return true
		}
	}
	return false
}

// cluster is for tests that start three nodes of their own.
const cluster = `\.TestACluster`

// areas are the rows of the table.
func areas() []area {
	return []area{
		{"processor: nothing is lost, whatever fails", []string{
			`^processor\.Test(KilledFiftyTimes|Outages|Soak|CutConnections|ChangesUnderLoad|StoppingUnderLoad|ProcessorsShare|ACluster)`,
			`^processor\.Test(TheQueueIsDeleted|TheExchange|AReturnedMessage|AFullTier|AChannelException|ASilentConnection|ACrashingConsumer)`,
			`^processor\.TestHeaders`,
		}},
		{"processor: each count, death and header leads to one place", []string{
			`^processor\.(Test|Fuzz)(Decide|EveryDeath|APoisonedMessage|EachDeadLetter|AMessageThatRecovers|ALadderThatShrank)`,
			`^processor\.Test(APublishersOwnHeaders|AKeyThatLooks|MessagesPutThere|TheGenomicsPipeline)`,
			`^spec\.Test(EveryCount|NoExchangeDrops|NoCycle|KeyLikeAnAddress|NoBackoff)`,
		}},
		{"metrics, notices, alerts, dashboard", []string{
			`^processor\.Test(Metrics|Notices|ADeadWebhook|Ready|Unhealthy|Counting)`,
			`^root\.Test(Alerts|Promtool|Queries|Dashboard|ProcessListens)`, `^notify\.`, `^generate\.`,
		}},
		{"processor: starting, stopping, waiting", []string{`^processor\.`, `^relay\.`, `^root\.Test(ProcessWatch|ProcessInTwoVHosts)`}},
		{"migrate: each message to exactly one queue, and back", []string{`^migrate\.`}},
		{"apply converges: killed, cut off, refused, two at once, beside others", []string{
			`^root\.Test(Apply|APolicyWhoseWriter|QuorumQueuesWhoseDeclarer|BesideRealTopologies|Alarm|FeatureFlags)`, `^plan\.TestApplyConverges`,
		}},
		{"plan and apply: each object, change and state of a queue", []string{`^root\.TestCases`}},
		{"policies of other teams and of the operator harm no generated queue", []string{
			`^root\.Test(PoliciesOfOthers|OverflowPolicyOfOthers|OperatorPolicies)`, `^plan\.Test(PolicyEffects|Protection|Endured)`,
		}},
		{"rights: those printed suffice, and each is needed", []string{`^root\.Test(\w*RightsSuffice|Each\w*RightIsNeeded|ReadersNeedNothing)`}},
		{"TLS, certificates, secrets", []string{`^root\.Test(MutualTLS|ExpiredCertificate|NothingTellsSecrets)`, `^broker\.Test(TLS|HTTPWhereTLS)`}},
		{"odd names, through every command", []string{`^root\.Test(Migrate)?OddNames`, `^broker\.TestInspect(SeesOddNames|ReadsOddVHosts)`, `^broker\.TestOddBindings`}},
		{"the broker's answers are read as they are meant", []string{`^broker\.`}},
		{"the command line, the README and its examples", []string{`^root\.Test(Scripts|BrokenFiles|Readme|CommandsInThePages)`, `^cmd\.`}},
		{"services and deployment: declare programs, templates", []string{`^root\.Test(Snippets|TheTemplatesRun|TheImage)`}},
		{"without a broker: the file, what it compiles to, the plan, the state", []string{`^(topology|spec|templates|plan|status)\.`}},
		{"the tests' own tools", []string{`^broker/brokertest\.`, `^matrix\.`}},
		{"everything else", []string{``}},
	}
}
