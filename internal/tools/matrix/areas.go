package main

import (
	"regexp"
	"slices"
)

// area is a promise, and the tests that hold it.
type area struct {
	promise string
	// tests are regular expressions for names such as processor.TestOutages. A test
	// belongs to the first area with an expression that matches.
	tests []string
}

// has reports whether the test is one of the area's.
func (a area) has(name string) bool {
	return slices.ContainsFunc(a.tests, func(expr string) bool { return regexp.MustCompile(expr).MatchString(name) })
}

// cluster is for tests that start three nodes of their own.
const cluster = `\.TestACluster`

// areas are the rows of the table.
func areas() []area {
	return []area{
		{"processor: no message is lost, whatever fails", []string{
			`^processor\.Test(KilledFiftyTimes|Outages|Soak|CutConnections|ChangesUnderLoad|StoppingUnderLoad)`,
			`^processor\.Test(ProcessorsShare|ACluster|TheQueueIsDeleted|TheExchange|AReturnedMessage|AFullTier)`,
			`^processor\.Test(AChannelException|ASilentConnection|ACrashingConsumer|Headers)`,
		}},
		{"processor: each count, death and header leads to one place", []string{
			`^processor\.(Test|Fuzz)(Decide|EveryDeath|APoisonedMessage|EachDeadLetter|AMessageThatRecovers|ABackoffThatShrank)`,
			`^processor\.Test(APublishersOwnHeaders|AKeyThatLooks|MessagesPutThere|TheGenomicsPipeline)`,
			`^spec\.Test(EveryCount|NoExchangeDrops|NoCycle|KeyLikeAnAddress|NoBackoff)`,
		}},
		{"desk: a look takes nothing, keeps the order, and refuses harm", []string{
			`^desk\.Test(Looks|AKilledLook|TwoLooks|AConsumerAttaches|ACutConnection)`, `^broker/amqp\.TestAHolder`,
		}},
		{"desk: no plan and no migration touches the messages of a run", []string{
			`^e2e\.Test(Apply|Migrate)KeepsTheQueuesOfTheDesk`, `^plan\.Test(ADesk|WarningsOfTheDesk|DeskQueues)`,
		}},
		{"desk: runs are exact after a kill, and the brake stops them", []string{`^desk\.`}},
		{"desk: what is decoded, masked, found and exported", []string{`^(decode|redact|deadletter)\.`}},
		{"where the broker routes a message, computed and compared with the broker", []string{`^route\.`}},
		{"audit, import, trace, graph: what the objects of a virtual host do", []string{
			`^(audit|survey|importer|trace|graph|definitions|arguments|pattern)\.`,
		}},
		{"try: what a message does on a broker of its own topology", []string{`^try\.`}},
		{"verify: canaries come back, and nothing stays behind", []string{
			`^verify\.`, `^e2e\.Test(AKilledVerify|TheJobThatVerifies)`,
		}},
		{"metrics, notices, alerts, dashboard", []string{
			`^processor\.Test(Metrics|Notices|ADeadWebhook|Ready)`, `^processor/monitor\.`,
			`^e2e\.Test(Alerts|Promtool|Queries|Dashboard|ProcessListens)`, `^notify\.`, `^generate\.`,
		}},
		{"processor: starting, stopping, waiting", []string{
			`^processor\.`, `^relay\.`, `^e2e\.Test(ProcessWatch|ProcessInTwoVHosts)`,
		}},
		{"migrate: each message to exactly one queue, and back", []string{`^migrate\.`}},
		{"apply converges: killed, interrupted, refused, two at once, next to foreign objects", []string{
			`^e2e\.Test(Apply|ForeignTopologies|Alarm|FeatureFlags)`,
			`^plan\.TestApplyConverges`, `^apply\.`,
		}},
		{"plan and apply: each object, change and state of a queue", []string{`^e2e\.TestEachChange`}},
		{"policies of other teams and of the operator harm no generated queue", []string{
			`^e2e\.Test(ForeignPolicies|AForeignOverflowPolicy|OperatorPolicies)`,
			`^plan\.Test(PolicyEffects|Protection|Endured)`, `^policy\.`,
		}},
		{"rights: those printed suffice, and each is needed", []string{
			`^e2e\.Test(\w*RightsSuffice|Each\w*RightIsNeeded|ReadersNeedNoPermission)`,
		}},
		{"TLS, certificates, secrets", []string{
			`^e2e\.Test(MutualTLS|ExpiredCertificate|ReplacedSecrets|NothingRevealsSecrets)`,
			`^broker/management\.Test(TLS|PlainHTTPToATLSPort)`,
		}},
		{"the page of the desk: who may open it, what it shows and does", []string{`^desk/page\.`, `^e2e\.TestThePage`}},
		{"odd names, through every command", []string{
			`^e2e\.Test(Migrate)?OddNames`,
			`^broker/management\.TestInspect(ReturnsOddNames|ReadsOddVHosts)`, `^broker/management\.TestOddBindings`,
		}},
		{"answers of the broker are understood", []string{`^broker[./]`}},
		{"the command line, the README and the pages", []string{
			`^e2e\.Test(Scripts|EachCommandHasAScript|BrokenFiles|Readme)`,
			`^e2e\.Test(PagesAsSessions|EachAlertHasASection|MessagesOfTroubleshooting|TheTableAboutConsumers)`,
			`^e2e\.Test(CommandsInThePages|LinksInThePages|PathsInThePages|ProofsInThePages|IndexOfThePages)`, `^cmd\.`,
		}},
		{"services and deployment: declare programs, templates", []string{`^e2e\.Test(Snippets|TheTemplatesRun|TheImage)`}},
		{"without a broker: the file, what it compiles to, the plan, the state", []string{
			`^(topology|spec|templates|plan|planview|simulate|status|text)\.`,
		}},
		{"the tests' own tools", []string{`^brokertest\.`, `^tools/`}},
		{"everything else", []string{``}},
	}
}
