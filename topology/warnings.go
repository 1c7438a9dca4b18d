package topology

// The fixed names of warnings. docs/plan.md has each of them.
const (
	// WarnAlarm: the broker accepts no messages, because memory or disk space is short.
	WarnAlarm = "alarm"
	// WarnDefaultDeliveryLimit: the broker's own delivery limit applies to a new quorum queue, or a
	// new classic queue has none.
	WarnDefaultDeliveryLimit = "default-delivery-limit"
	// WarnDeskParked: the plan deletes what parked messages need to go back.
	WarnDeskParked = "desk-parked"
	// WarnDeskPolicy: a policy of another team would lose messages that the desk keeps.
	WarnDeskPolicy = "desk-policy"
	// WarnDeskRun: a run of the desk has not ended.
	WarnDeskRun = "desk-run"
	// WarnEndsDelay: messages that wait in a queue for a TTL no longer come to the next work queue.
	WarnEndsDelay = "ends-delay"
	// WarnForgedDeath: a publisher can harm the broker by the header x-death.
	WarnForgedDeath = "forged-x-death"
	// WarnIgnoredKey: a binding of a fanout exchange has a key.
	WarnIgnoredKey = "ignored-key"
	// WarnLimitedDeadLetters: a dead-letter queue deletes its oldest messages above a large number of
	// them, or refuses more.
	WarnLimitedDeadLetters = "limited-dead-letters"
	// WarnMigrationPending: a successor waits for its migration, or its legacy queue still exists.
	WarnMigrationPending = "migration-pending"
	// WarnMissingRights: the user lacks rights that apply needs.
	WarnMissingRights = "missing-rights"
	// WarnNoProcessor: no processor is consuming a failed queue.
	WarnNoProcessor = "no-processor"
	// WarnNoQueues: the file has no queues.
	WarnNoQueues = "no-queues"
	// WarnOddExchangeType: the type of an exchange is close to one that RabbitMQ has.
	WarnOddExchangeType = "odd-exchange-type"
	// WarnOverruled: a policy of another team changes a queue, and nothing is lost.
	WarnOverruled = "overruled"
	// WarnRenamed: a queue is deleted, and one with the same bindings is created.
	WarnRenamed = "renamed"
	// WarnRestartProcessors: the tiers of a backoff or the dead-letter queue of a match change, and
	// processors may have the previous ones.
	WarnRestartProcessors = "restart-processors"
	// WarnRetiredAddress: failed messages of a queue that left the file may still wait for a retry.
	WarnRetiredAddress = "retired-address"
	// WarnRetiredBackoff: a backoff that is no longer in the file still has messages.
	WarnRetiredBackoff = "retired-backoff"
	// WarnRetiredDeadLetters: the previous dead-letter queue of a work queue is not empty.
	WarnRetiredDeadLetters = "retired-dead-letters"
	// WarnRetiredTier: a tier that is no longer in the file still has messages.
	WarnRetiredTier = "retired-tier"
	// WarnStarvesTier: a work queue with a limit can hold up the retries of others in its tier.
	WarnStarvesTier = "starves-tier"
	// WarnStillBound: what a new binding matches goes to another queue too, by a binding that another
	// client made and the file does not have.
	WarnStillBound = "still-bound"
	// WarnUnknownArgument: RabbitMQ does not know an argument of the queue.
	WarnUnknownArgument = "unknown-argument"
	// WarnUnroutableRetries: a queue is deleted, and failed messages of it may wait for a retry.
	WarnUnroutableRetries = "unroutable-retries"
	// WarnUnusedBackoff: no queue has the backoff.
	WarnUnusedBackoff = "unused-backoff"
)
