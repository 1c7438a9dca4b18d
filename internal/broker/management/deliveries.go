package management

import (
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Deliveries are what the statistics of a queue count.
type Deliveries struct {
	// Delivered and Acknowledged are how many messages the queue has delivered, redeliveries
	// included, and how many of them consumers have acknowledged, since its node has started. A
	// rejection is not among them. Zero may also mean that the broker keeps no statistics.
	Delivered, Acknowledged int64
	// Published is how many messages clients have published to it since then. What a queue
	// dead-letters to it is not among them.
	Published int64
	// Consumers and Messages are how many it has.
	Consumers, Messages int64
}

// longestFilter is how many bytes a regular expression that chooses queues has at most. RabbitMQ
// refuses one of more than 1,024 since 4.2.6 and 4.3.0 (rabbit_mgmt_util), and paths of 8,000.
const longestFilter = 1000

// longestPage is how many queues RabbitMQ lists in a page at most.
const longestPage = 500

// Deliveries reads what is counted of these queues, in one request. Those that do not exist are not
// in the result. The numbers are up to 10 seconds late.
func (m *Client) Deliveries(ctx context.Context, queues []string) (map[string]Deliveries, error) {
	type row struct {
		Name      string          `json:"name"`
		Consumers int64           `json:"consumers"`
		Messages  int64           `json:"messages"`
		Stats     json.RawMessage `json:"message_stats"` // an empty list, if there are none
	}
	var list []row
	path := "queues/" + url.PathEscape(m.vhost) +
		"?columns=name,consumers,messages,message_stats.deliver_get,message_stats.ack,message_stats.publish"
	filter := "^(" + strings.Join(text.Each(queues, regexp.QuoteMeta), "|") + ")$"
	var err error
	if len(filter) > longestFilter || len(queues) > longestPage {
		err = m.get(ctx, &list, path)
	} else {
		page := struct {
			Items *[]row `json:"items"`
		}{&list}
		err = m.get(ctx, &page, path+"&page=1&page_size="+strconv.Itoa(longestPage)+
			"&use_regex=true&name="+url.QueryEscape(filter))
	}
	if err != nil {
		return nil, err
	}
	out := map[string]Deliveries{}
	for _, r := range list {
		var stats struct {
			Delivered    int64 `json:"deliver_get"`
			Acknowledged int64 `json:"ack"`
			Published    int64 `json:"publish"`
		}
		_ = json.Unmarshal(r.Stats, &stats)
		if slices.Contains(queues, r.Name) {
			out[r.Name] = Deliveries{stats.Delivered, stats.Acknowledged, stats.Published, r.Consumers, r.Messages}
		}
	}
	return out, nil
}
