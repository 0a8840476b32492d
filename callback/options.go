package callback

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/outbound/meter"
)

// InFlight is how many requests to callbacks may be under way at once, by default.
const InFlight = 1024

// Options of an Engine. Zero values are the defaults.
type Options struct {
	InFlight int // most requests under way at once; default InFlight

	MaxChanges int // most changes in one delivery, and most entries that are looked at for it; default and maximum 1,000
	MaxBytes   int // most bytes of changes in one delivery; a single change may have more; default 1 MiB

	Formats map[string]*outlet.Format // of what is delivered, by Subscription.Form, besides change notifications; default: none

	Activity Activity // is told what becomes of deliveries; default: nobody is told

	Rights Rights // of those who made subscriptions; default: everybody may go on

	Clock claim.Clock // by which claims end, besides Go's own; default: the machine's, which goes on while it is suspended

	Logger  *slog.Logger          // gets no secret, and of a callback's URL only the host; default: discard
	Metrics prometheus.Registerer // registers the engine's metrics; each engine needs a registry of its own; default: nowhere
	Meter   *meter.Meter          // counts attempts; default: one that nobody reads
}

func (o *Options) defaults() {
	o.InFlight = cmp.Or(o.InFlight, InFlight)
	o.MaxChanges = min(cmp.Or(o.MaxChanges, 1000), 1000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<20)
	if o.Activity == nil {
		o.Activity = nobody{}
	}
	if o.Rights == nil {
		o.Rights = everybody{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = meter.New(nil)
	}
}

// An Outcome is what came of a request to a callback, or of a request of a subscriber
// that is refused. It has no secret.
type Outcome struct {
	Set      string
	ID       subscription.ID
	Callback string
	By       string // who made the request, as in subscription.Request
	Kind     string // as that of a subscription.Attempt
	Status   int    // of the callback's answer; 0: there was none
	Error    string // empty: it went right
	Final    bool   // it is not tried again: what the subscriber asked for is refused
}

// outcome returns the Outcome of an attempt for a request.
func outcome(r *subscription.Request, a *subscription.Attempt, final bool) Outcome {
	return Outcome{Set: r.Set, ID: r.ID(), Callback: r.Callback, By: r.By, Kind: string(r.Mode), Status: a.Status, Error: a.Error, Final: final}
}

// Activity is told what becomes of deliveries and verifications. Its methods must not block, nor
// call the Engine.
type Activity interface {
	// Delivered says that a callback of a set has taken so many changes.
	Delivered(set string, changes int)
	// Called says that a delivery or a verification failed, or was the first success after that.
	Called(o Outcome)
}

// nobody is an Activity that is told nothing.
type nobody struct{}

func (nobody) Delivered(string, int) {}
func (nobody) Called(Outcome)        {}

// everybody is the Rights of everybody to everything.
type everybody struct{}

func (everybody) Version() uint64 { return 0 }

func (everybody) May(string, string, bool, string) (until time.Time, why string) { return }
