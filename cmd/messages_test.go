package cmd

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/redact"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// folder returns a folder with a file of protobuf source below it.
func protoFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "protos"), 0o700); err != nil {
		t.Fatal(err)
	}
	source := "syntax = \"proto3\"; package shop; message Order { string id = 1; } message Mail { string to = 1; }"
	if err := os.WriteFile(filepath.Join(folder, "protos", "order.proto"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// Schemas come from the topology file and from flags, and a rule of a flag comes first.
func TestDecoderOfFlagsAndFile(t *testing.T) {
	t.Parallel()
	folder := protoFolder(t)
	protos := filepath.Join(folder, "protos")
	file := topology.Messages{
		Protos: []string{"order.proto"}, ImportPaths: []string{protos},
		Types:  []topology.MessageType{{Key: "order.*", Type: "shop.Order"}},
		Queues: []topology.QueueMessages{{Queue: "mail", Types: []topology.MessageType{{Type: "shop.Mail"}}}},
	}
	for name, tc := range map[string]struct {
		flags messageFlags
		file  topology.Messages
		queue string
		want  string // the type, or the error
	}{
		"nothing":       {messageFlags{}, topology.Messages{}, "", ""},
		"file":          {messageFlags{}, file, "", "shop.Order"},
		"queue":         {messageFlags{}, file, "mail", "shop.Mail"},
		"flag":          {messageFlags{types: []string{"shop.Mail"}}, file, "", "shop.Mail"},
		"flag with key": {messageFlags{types: []string{"shop.Order", "order.#=shop.Mail"}}, file, "", "shop.Mail"},
		"flags alone": {
			messageFlags{protos: []string{"order.proto"}, importPaths: []string{protos}, types: []string{"shop.Mail"}},
			topology.Messages{},
			"",
			"shop.Mail",
		},
		"whole path": {
			messageFlags{protos: []string{filepath.Join(protos, "order.proto")}, types: []string{"shop.Mail"}},
			topology.Messages{},
			"",
			"shop.Mail",
		},
		"no schema": {
			messageFlags{types: []string{"shop.Mail"}},
			topology.Messages{},
			"",
			`the message type "shop.Mail" needs a schema; name a descriptor set with --protoset`,
		},
		"unknown type": {
			messageFlags{types: []string{"shop.Mali"}},
			file,
			"",
			`no schema declares the message type "shop.Mali"; did you mean one of shop.Mail, shop.Order`,
		},
		"no such file":   {messageFlags{protosets: []string{"none.binpb"}}, file, "", "descriptor set none.binpb: "},
		"no such source": {messageFlags{protos: []string{"none.proto"}}, file, "", "not found in ., " + protos},
		"empty type":     {messageFlags{types: []string{"a="}}, file, "", "--type is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := tc.flags.decoder(tc.file)
			if err != nil {
				if tc.want == "" || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %q", err, tc.want)
				}
				return
			}
			doc := d.Decode(decode.Input{Key: "order.placed", Queue: tc.queue, Body: []byte("\x0a\x03A-1")})
			if doc.Type != tc.want {
				t.Errorf("type %q, want %q", doc.Type, tc.want)
			}
		})
	}
}

// A queue adds to the rules of all queues, flags add to both, and a message of an unknown work
// queue gets the rules of all.
func TestRedactors(t *testing.T) {
	t.Parallel()
	top := topology.Compiled{
		WorkQueues: []topology.WorkQueue{{Name: "billing"}, {Name: "mail"}},
		Messages: topology.Messages{
			Redact: topology.Redaction{Types: []string{"email"}},
			Queues: []topology.QueueMessages{{Queue: "mail", Redact: topology.Redaction{Paths: []string{"body.name"}}}},
		},
	}
	flags := messageFlags{redact: []string{"iban", "headers.token"}}
	of, err := flags.redactors(top)
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"name":"Ann","mail":"a@b.de","iban":"DE89370400440532013000"}`
	var d decode.Decoder
	for queue, want := range map[string]string{
		"billing": `map[iban:[masked] mail:[masked] name:Ann]`,
		"mail":    `map[iban:[masked] mail:[masked] name:[masked]]`,
		"":        `map[iban:[masked] mail:[masked] name:[masked]]`,
		"other":   `map[iban:[masked] mail:[masked] name:[masked]]`,
	} {
		doc := of(queue).Begin(nil).Document(d.Decode(decode.Input{Body: []byte(body)}))
		tree, _ := doc.Value.(map[string]any)
		if got := "map[iban:" + asText(tree["iban"]) + " mail:" + asText(tree["mail"]) + " " +
			"name:" + asText(tree["name"]) + "]"; got != want {
			t.Errorf("a message of %q is %s, want %s", queue, got, want)
		}
		if h := of(queue).Begin(nil).Headers(map[string]any{"Token": "x"}); h["Token"] != redact.Mask {
			t.Errorf("a header of a message of %q is %v", queue, h["Token"])
		}
	}
	_, err = (&messageFlags{redact: []string{"mail"}}).redactors(top)
	if _, usage := errors.AsType[usageError](err); !usage || !strings.Contains(err.Error(), `--redact: "mail" `+
		`is not a path; write it like body.customer.email`) {
		t.Errorf("a wrong --redact gives %v", err)
	}
	hidden, err := (&messageFlags{redact: []string{"bodies"}}).redactors(topology.Compiled{})
	if err != nil || hidden("x").Begin(nil).Document(decode.Document{Text: "x"}).Text != redact.Mask {
		t.Errorf("--redact bodies shows a body (%v)", err)
	}
}

func asText(v any) string {
	s, _ := v.(string)
	return s
}

// The topology file takes the same paths and kinds as the flag.
func TestRulesOfFileAndFlagAgree(t *testing.T) {
	t.Parallel()
	rules := []string{
		"body", "headers", "body.a", "body.a.b", "body.*", "body.a[*]", "body.a[*][*].b", "body.a[0]", "body..a",
		"headers.x-y",
		"header.a", "body.", "body[*]", "body.ä", "email", "iban", "bearer", "mail", "a.b", "body.a b",
	}
	for _, rule := range rules {
		key, r := "paths", redact.Rules{Paths: []string{rule}}
		if !strings.Contains(rule, ".") && !strings.HasPrefix(rule, "body") && !strings.HasPrefix(rule, "headers") {
			key, r = "types", redact.Rules{Types: []string{rule}}
		}
		_, ofFlag := redact.New(r)
		file := "version: 1\nname: shop\nmessages: {redact: {" + key + ": [\"" + rule + "\"]}}\n"
		_, _, ofFile := spec.Load([]spec.Source{{Name: "f", Data: []byte(file)}}, func(string) (string, bool) { return "", false })
		if (ofFlag == nil) != (ofFile == nil) {
			t.Errorf("the rule %q: the flag says %v, the file %v", rule, ofFlag, ofFile)
		}
	}
}

// Notices show the decoded body, and nothing that rules mask.
func TestShownInNotices(t *testing.T) {
	t.Parallel()
	top := topology.Compiled{
		WorkQueues: []topology.WorkQueue{{Name: "billing"}, {Name: "mail"}},
		Messages: topology.Messages{Queues: []topology.QueueMessages{
			{Queue: "mail", Redact: topology.Redaction{Paths: []string{"body.name", "headers.retry-error-type"}}},
		}},
	}
	m := notify.Message{
		ID: "m-1", Key: "to.Ann Example", Error: "no queue of Ann Example", ErrorType: "Boom",
		Body: []byte(`{"name":"Ann Example"}`), SendsBody: true,
		Headers: map[string]any{"retry-error": "no queue of Ann Example", "retry-error-type": "Boom"},
	}
	for queue, want := range map[string]notify.Shown{
		"billing": {
			ID: "m-1", Queue: "billing", Key: m.Key, Error: m.Error, ErrorType: "Boom", Format: "json",
			Text: "{\n  \"name\": \"Ann Example\"\n}",
		},
		"mail": {
			ID: "m-1", Queue: "mail", Key: "to.[masked]", Error: "no queue of [masked]", ErrorType: "[masked]", Format: "json",
			Text: "{\n  \"name\": \"[masked]\"\n}", Masked: true,
		},
	} {
		show, err := shown(top, true, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Queue = queue
		if got := show(m); got != want {
			t.Errorf("a notice of %s shows %+v, want %+v", queue, got, want)
		}
		cut := m
		cut.Error = (strings.Repeat("text ", 300) + "Ann Example")[len("Example"):][:1024-len("Ann Exam")] + "Ann Exam"
		cut.Headers = map[string]any{"retry-error": cut.Error}
		if got := show(cut); strings.Contains(got.Error, "Ann Exam") == (queue == "mail") {
			t.Errorf("a notice of %s shows the error %q", queue, got.Error)
		}
		cut.Headers = nil
		if got := show(cut); strings.Contains(got.Error, "Ann Exam") == (queue == "mail") {
			t.Errorf("a notice of %s without the header shows the error %q", queue, got.Error)
		}
		large := m
		large.Body = make([]byte, maxNoticeBody+1)
		if got := show(large); got.Text != "" || !strings.Contains(got.Note, "larger than 256 KiB") ||
			queue == "billing" && got.Error != m.Error {
			t.Errorf("a notice of a large body shows %+v", got)
		}
	}
}

// What a path names in the body is masked in notices and logs that do not show the body. Where the
// body cannot be looked at, all that may repeat it is masked.
func TestShownWithoutBodies(t *testing.T) {
	t.Parallel()
	top := topology.Compiled{
		WorkQueues: []topology.WorkQueue{{Name: "billing"}, {Name: "mail"}},
		Messages: topology.Messages{Queues: []topology.QueueMessages{
			{Queue: "mail", Redact: topology.Redaction{Paths: []string{"body.name"}}},
		}},
	}
	m := notify.Message{
		ID: "m-Ann Example", Key: "order", Error: "no Ann Example", ErrorType: "Boom",
		Body: []byte(`{"name":"Ann Example"}`),
	}
	large, empty := m, m
	large.Body, empty.Body = make([]byte, maxNoticeBody+1), nil
	plain := notify.Shown{ID: m.ID, Key: m.Key, Error: m.Error, ErrorType: m.ErrorType}
	masked := notify.Shown{ID: "m-[masked]", Key: "order", Error: "no [masked]", ErrorType: "Boom", Masked: true}
	whole := notify.Shown{ID: redact.Mask, Key: redact.Mask, Error: redact.Mask, ErrorType: redact.Mask, Masked: true}
	unmasked := plain
	unmasked.Masked = true // nothing of this message, but of others
	var log bytes.Buffer
	for _, protosets := range [][]string{nil, {"none.binpb"}} {
		top.Messages.Protosets = protosets
		show, err := shown(top, false, false, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		seen := masked
		if protosets != nil {
			seen = whole
		}
		for _, tc := range []struct {
			queue   string
			message notify.Message
			want    notify.Shown
		}{
			{"billing", m, plain},
			{"billing", large, plain},
			{"mail", m, seen},
			{"mail", large, whole},
			{"mail", empty, unmasked},
		} {
			tc.message.Queue = tc.queue
			got := show(tc.message)
			got.Queue = ""
			if got != tc.want {
				t.Errorf("of %s with %d bytes is shown %+v, want %+v", tc.queue, len(tc.message.Body), got, tc.want)
			}
		}
	}
	if strings.Count(log.String(), "cannot read the schemas") != 1 || !strings.Contains(log.String(), "none.binpb") {
		t.Errorf("the log says %s", &log)
	}
	if _, err := shown(top, true, false, nil); err == nil || !strings.Contains(err.Error(), "none.binpb") {
		t.Errorf("a schema that does not exist gives %v", err)
	}
	top.Messages.Queues = nil
	if _, err := shown(top, false, false, nil); err != nil {
		t.Errorf("without bodies and rules, schemas are read: %v", err)
	}
}

// With --watch, notices follow the files of the schemas, and keep the last ones that can be read.
func TestNoticesFollowSchemas(t *testing.T) {
	t.Parallel()
	folder := protoFolder(t)
	file := filepath.Join(folder, "protos", "order.proto")
	var log bytes.Buffer
	w := watchedSchemas{
		log: slog.New(slog.NewTextHandler(&log, nil)), pause: time.Second,
		messages: topology.Messages{
			Protos: []string{"order.proto"}, ImportPaths: []string{filepath.Dir(file)},
			Types: []topology.MessageType{{Type: "shop.Order"}},
		},
	}
	if err := w.load(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, step := range []struct {
		source string
		after  time.Duration
		want   string
		logs   string
	}{
		{"", 2 * time.Second, "id", ""},
		{"message Order { string number = 1; }", 2500 * time.Millisecond, "id", ""}, // too early
		{"", 4 * time.Second, "number", "changed and are in effect"},
		{"message Order { broken", 6 * time.Second, "number", "keeping the previous ones"},
		{"message Order { string code = 1; }", 8 * time.Second, "code", "changed and are in effect"},
	} {
		if step.source != "" {
			if err := os.WriteFile(file, []byte("syntax = \"proto3\"; package shop; "+step.source), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		log.Reset()
		doc := w.current(now.Add(step.after)).Decode(decode.Input{Body: []byte("\x0a\x03A-1")})
		if !strings.Contains(doc.Text, `"`+step.want+`"`) || !strings.Contains(log.String(), step.logs) {
			t.Errorf("after %s the body is %s, want %s, and the log has %q", step.after, doc.Text, step.want, log.String())
		}
	}
}

// With --watch, several failed queues may ask for notices while a schema is read again.
func TestNoticesOfSeveralQueuesFollowSchemas(t *testing.T) {
	t.Parallel()
	folder := protoFolder(t)
	file := filepath.Join(folder, "protos", "order.proto")
	top := topology.Compiled{Messages: topology.Messages{
		Protos: []string{"order.proto"}, ImportPaths: []string{filepath.Dir(file)},
		Types: []topology.MessageType{{Type: "shop.Order"}},
	}}
	show, err := shown(top, true, true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	source := []byte("syntax = \"proto3\"; package shop; message Order { string number = 1; }")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		t.Fatal(err)
	}
	var queues sync.WaitGroup
	for range 4 {
		queues.Go(func() {
			m := notify.Message{Body: []byte("\x0a\x03A-1"), SendsBody: true}
			if got := show(m); !strings.Contains(got.Text, `"number"`) {
				t.Errorf("a notice shows %q", got.Text)
			}
		})
	}
	queues.Wait()
}
