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

// InFlight is the default limit on calls in flight.
const InFlight = 1024

// Options of an Engine. Zero values are the defaults.
type Options struct {
	InFlight int // most calls in flight; default InFlight

	MaxChanges int // most changes in a delivery, and most entries that are read for it; default and maximum 1,000
	MaxBytes   int // most bytes of the changes in a delivery that has several; default 1 MiB

	Formats  map[string]*outlet.Format // formats of deliveries by Subscription.Form, besides change notifications; default: none
	Activity Activity                  // receives the results of calls; default: none
	Rights   Rights                    // rights of the makers of subscriptions; default: all rights
	Clock    claim.Clock               // clock of claims; default: the clock of the machine, which does not stop while it is suspended

	Logger  *slog.Logger          // receives no secrets, and only the host of a callback; default: discard
	Metrics prometheus.Registerer // registry for the metrics of this Engine only; default: none
	Meter   *meter.Meter          // counts calls; default: none
}

func (o *Options) setDefaults() {
	o.InFlight = cmp.Or(o.InFlight, InFlight)
	o.MaxChanges = min(cmp.Or(o.MaxChanges, 1000), 1000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<20)
	if o.Activity == nil {
		o.Activity = noActivity{}
	}
	if o.Rights == nil {
		o.Rights = allRights{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = meter.New(nil)
	}
}

// An Outcome is the result of a call to a callback, or of a request that was refused without one. It has no
// secrets.
type Outcome struct {
	Set      string
	ID       subscription.ID
	Callback string
	By       string // see subscription.Request
	Kind     string // see subscription.Attempt
	Status   int    // status of the response, or zero if there was none
	Error    string // empty if the call succeeded
	Final    bool   // whether the call is not repeated
}

// outcome returns the Outcome of an attempt to execute a request.
func outcome(r *subscription.Request, a *subscription.Attempt, final bool) Outcome {
	return Outcome{Set: r.Set, ID: r.ID(), Callback: r.Callback, By: r.By, Kind: string(r.Mode), Status: a.Status, Error: a.Error, Final: final}
}

// An Activity receives the results of deliveries and verifications. Its methods must not block, nor call the
// Engine.
type Activity interface {
	// Delivered reports changes of a set that a callback has accepted.
	Delivered(set string, changes int)
	// Called reports a delivery or verification that failed, or succeeded after a failure.
	Called(o Outcome)
}

type noActivity struct{}

func (noActivity) Delivered(string, int) {}
func (noActivity) Called(Outcome)        {}

type allRights struct{}

func (allRights) Version() uint64 { return 0 }

func (allRights) May(string, string, bool, string) (until time.Time, why string) { return }
