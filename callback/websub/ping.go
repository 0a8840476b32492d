package websub

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/resourcesync"
)

// maxAudited is the number of sets of a ping in the audit log.
const maxAudited = 8

// ping handles the ping of a source, whose topics have changed (PubSubHubbub 0.3 section 7.1; WebSub leaves it open).
// Sources name topics in hub.url or hub.topic, any number of times. All are checked before the first fetch starts. An
// error names the rejected topic; the whole ping may be repeated.
func (s *Server) ping(ctx context.Context, form *form) error {
	if !form.Has("hub.url") && !form.Has("hub.topic") {
		return resourcesync.Invalidf("hub.url or hub.topic is missing; want a topic such as %s", s.base.Topic("SET"))
	}
	audit := trail.FromContext(ctx)
	audit.SetAction(trail.Ping, "")
	var sets, params []string // params[i] is the parameter that named sets[i]
	for _, name := range []string{"hub.url", "hub.topic"} {
		for _, topic := range form.Values[name] {
			set, _, err := s.resolveTopic(name, topic)
			if err != nil {
				return err
			}
			if slices.Contains(sets, set) {
				continue
			}
			sets, params = append(sets, set), append(params, fmt.Sprintf("%s=%.200s", name, topic))
			audit.SetAction(trail.Ping, strings.Join(sets[:min(len(sets), maxAudited)], ","))
			if err := access.MayPing(ctx, set); err != nil {
				return pingProblem(params[len(params)-1], err)
			}
		}
	}
	if s.opts.Sources == nil {
		return resourcesync.Invalidf("hub.mode=publish: this hub does not fetch changes; POST the changes instead")
	}
	for i, set := range sets {
		if err := s.opts.Sources.Ping(ctx, set); err != nil {
			return pingProblem(params[i], err)
		}
	}
	return nil
}

// pingProblem returns the problem of err, with the parameter that names the rejected topic.
func pingProblem(param string, err error) error {
	p := *problem.From(err)
	p.Detail = param + ": " + p.Detail
	return &p
}
