package reader

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// register sets the counters of the gates, and registers all metrics unless reg is nil.
func (r *Reader) register(reg prometheus.Registerer) {
	auto := promauto.With(reg)
	gauge := func(name, help string, value func() int) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return float64(value())
		})
	}
	gauge("rshub_inventory_snapshots", "Roots in use by this hub's readers, now or recently.", func() (n int) {
		for _, v := range r.views {
			n += len(v.snapshots)
		}
		return n
	})
	gauge("rshub_inventory_kept_bytes", "Approximate memory of states cached for returning readers, in bytes.", func() int { return r.bytes })
	inProgress := auto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rshub_inventory_readers", Help: "Baselines and states being read from this hub.",
	}, []string{"reader"})
	reads := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_inventory_reads_total",
		Help: "Reads of baselines, and of states for audits and listings: begun, or refused with 429 because of too many.",
	}, []string{"reader", "outcome"})
	for name, g := range map[string]*gate{"state": r.states, "baseline": r.baselines} {
		g.begun, g.refused = reads.WithLabelValues(name, "begun"), reads.WithLabelValues(name, "refused")
		g.inProgress = inProgress.WithLabelValues(name)
	}
}
