package chart

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kinds are what the chart, and the documentation, may install, in the version that
// they may use.
var kinds = map[string]func() metav1.Object{
	"v1 Pod":                                  func() metav1.Object { return &corev1.Pod{} },
	"v1 Secret":                               func() metav1.Object { return &corev1.Secret{} },
	"v1 Service":                              func() metav1.Object { return &corev1.Service{} },
	"v1 ServiceAccount":                       func() metav1.Object { return &corev1.ServiceAccount{} },
	"apps/v1 Deployment":                      func() metav1.Object { return &appsv1.Deployment{} },
	"apps/v1 StatefulSet":                     func() metav1.Object { return &appsv1.StatefulSet{} },
	"batch/v1 Job":                            func() metav1.Object { return &batchv1.Job{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() metav1.Object { return &autoscalingv2.HorizontalPodAutoscaler{} },
	"policy/v1 PodDisruptionBudget":           func() metav1.Object { return &policyv1.PodDisruptionBudget{} },
	"networking.k8s.io/v1 Ingress":            func() metav1.Object { return &networkingv1.Ingress{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() metav1.Object { return &networkingv1.NetworkPolicy{} },
	"gateway.networking.k8s.io/v1 HTTPRoute":  func() metav1.Object { return &gatewayv1.HTTPRoute{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() metav1.Object { return &monitoringv1.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() metav1.Object { return &monitoringv1.PrometheusRule{} },
}

var separator = regexp.MustCompile(`(?m)^---$`)

// An installation is what one rendering of the chart installs.
type installation struct {
	t       *testing.T
	objects []metav1.Object
	pod     corev1.PodTemplateSpec // of the hubs
	claims  []string               // volumes that come with each of them
}

// install renders the chart, and reads what comes of it as strictly as can be: an
// unknown field, one in the wrong case and one that is there twice are errors.
func install(t *testing.T, values map[string]any, in cluster) *installation {
	t.Helper()
	texts, err := render(t, values, in)
	if err != nil {
		t.Fatal(err)
	}
	delete(texts, "NOTES.txt")
	i := &installation{t: t}
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		for _, doc := range separator.Split(texts[file], -1) {
			if strings.TrimSpace(doc) == "" {
				continue
			}
			i.objects = append(i.objects, decode(t, file, doc))
		}
	}
	workloads := 0
	for _, o := range i.objects {
		switch w := o.(type) {
		case *appsv1.StatefulSet:
			workloads++
			i.pod = w.Spec.Template
			for _, c := range w.Spec.VolumeClaimTemplates {
				i.claims = append(i.claims, c.Name)
			}
			i.selects(w.Spec.Selector, i.pod.Labels, "the StatefulSet its pods")
		case *appsv1.Deployment:
			workloads++
			i.pod = w.Spec.Template
			i.selects(w.Spec.Selector, i.pod.Labels, "the Deployment its pods")
		}
	}
	if workloads != 1 {
		t.Fatalf("there are %d StatefulSets and Deployments", workloads)
	}
	return i
}

// decode reads a manifest as its kind.
func decode(t *testing.T, file, doc string) metav1.Object {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	make, ok := kinds[kind.APIVersion+" "+kind.Kind]
	if !ok {
		t.Fatalf("%s: a %s %s is not what the chart may install:\n%s", file, kind.APIVersion, kind.Kind, doc)
	}
	json, err := yaml.YAMLToJSONStrict([]byte(doc))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	object := make()
	strict, err := kjson.UnmarshalStrict(json, object)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, err := range strict {
		t.Errorf("%s: %v", file, err)
	}
	return object
}

// find returns the object of a type with a name, or nil.
func find[T metav1.Object](i *installation, name string) (found T) {
	for _, o := range i.objects {
		if v, ok := o.(T); ok && v.GetName() == name {
			return v
		}
	}
	return found
}

// selects checks that a selector fits labels.
func (i *installation) selects(s *metav1.LabelSelector, set map[string]string, what string) {
	i.t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(set)) {
		i.t.Errorf("%s: %v does not select %v, %v", what, selector, set, err)
	}
}

// TestManifests checks what has to hold in every combination.
func TestManifests(t *testing.T) {
	for name, text := range cases(t) {
		t.Run(name, func(t *testing.T) {
			i := install(t, parse(t, text), installed)
			names := map[string]bool{}
			for _, o := range i.objects {
				key := fmt.Sprintf("%T %s", o, o.GetName())
				if names[key] {
					t.Errorf("there are two of %s", key)
				}
				names[key] = true
				if o.GetLabels()["app.kubernetes.io/instance"] != release || o.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" {
					t.Errorf("%s has the labels %v", key, o.GetLabels())
				}
				if o.GetNamespace() != "" {
					t.Errorf("%s says where it goes, and helm -n does", key)
				}
				i.check(o)
			}
			i.checkPod(&i.pod.Spec, i.claims)
			i.checkWait()
			i.checkDrain()
		})
	}
}

// check checks that what an object leads to is there.
func (i *installation) check(o metav1.Object) {
	i.t.Helper()
	switch o := o.(type) {
	case *corev1.Pod: // of helm test
		i.checkPod(&o.Spec, nil)
	case *corev1.ServiceAccount:
		if o.AutomountServiceAccountToken == nil || *o.AutomountServiceAccountToken {
			i.t.Error("the ServiceAccount has a token")
		}
	case *corev1.Secret:
		if len(o.StringData) > 0 {
			i.t.Errorf("the Secret %s keeps in the cluster what the values have no longer", o.Name)
		}
	case *corev1.Service:
		i.selects(metav1.SetAsLabelSelector(o.Spec.Selector), i.pod.Labels, "Service "+o.Name)
		for _, p := range o.Spec.Ports {
			i.hasPort(p.TargetPort.String(), "Service "+o.Name)
			if (p.TargetPort.String() == "ops") != (o.Spec.ClusterIP == corev1.ClusterIPNone) {
				i.t.Errorf("Service %s leads to %s", o.Name, p.TargetPort.String())
			}
		}
	case *appsv1.StatefulSet:
		if s := find[*corev1.Service](i, o.Spec.ServiceName); s == nil || s.Spec.ClusterIP != corev1.ClusterIPNone {
			i.t.Errorf("there is no headless Service %s", o.Spec.ServiceName)
		}
		if o.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			i.t.Errorf("with %s an upgrade cannot replace a hub that is not ready", o.Spec.PodManagementPolicy)
		}
		if *o.Spec.Replicas > 1 {
			i.t.Errorf("%d hubs have a disk each", *o.Spec.Replicas)
		}
	case *appsv1.Deployment:
		if s := o.Spec.Strategy; (s.RollingUpdate != nil) != (s.Type == appsv1.RollingUpdateDeploymentStrategyType) {
			i.t.Errorf("hubs are replaced by %s with %v", s.Type, s.RollingUpdate)
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		d := find[*appsv1.Deployment](i, o.Spec.ScaleTargetRef.Name)
		if d == nil {
			i.t.Fatalf("there is no Deployment %s to scale", o.Spec.ScaleTargetRef.Name)
		}
		if d.Spec.Replicas != nil {
			i.t.Error("the Deployment says how many hubs there are, and so does its scaler")
		}
	case *policyv1.PodDisruptionBudget:
		i.selects(o.Spec.Selector, i.pod.Labels, "PodDisruptionBudget")
		if (o.Spec.MinAvailable == nil) == (o.Spec.MaxUnavailable == nil) {
			i.t.Error("a PodDisruptionBudget has either minAvailable or maxUnavailable")
		}
	case *networkingv1.Ingress:
		for _, r := range o.Spec.Rules {
			for _, p := range r.HTTP.Paths {
				i.leads(p.Backend.Service.Name, p.Backend.Service.Port.Name, 0)
			}
		}
	case *gatewayv1.HTTPRoute:
		for _, r := range o.Spec.Rules {
			for _, b := range r.BackendRefs {
				i.leads(string(b.Name), "", int32(*b.Port))
			}
		}
	case *networkingv1.NetworkPolicy:
		i.selects(&o.Spec.PodSelector, i.pod.Labels, "NetworkPolicy")
		for _, r := range o.Spec.Ingress {
			for _, p := range r.Ports {
				i.hasPort(p.Port.String(), "NetworkPolicy")
				if p.Port.String() == "ops" && len(r.From) == 0 {
					i.t.Error("everybody may reach metrics and health")
				}
			}
		}
	case *monitoringv1.ServiceMonitor:
		for _, e := range o.Spec.Endpoints {
			found := false
			for _, other := range i.objects {
				if s, ok := other.(*corev1.Service); ok && labels.SelectorFromSet(o.Spec.Selector.MatchLabels).Matches(labels.Set(s.Labels)) {
					found = slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == e.Port })
				}
			}
			if !found {
				i.t.Errorf("there is no Service with the port %s to be monitored", e.Port)
			}
		}
	case *monitoringv1.PrometheusRule:
		for _, g := range o.Spec.Groups {
			for _, r := range g.Rules {
				if r.Expr.String() == "" || (r.Alert == "") == (r.Record == "") {
					i.t.Errorf("group %s has a rule that is none: %+v", g.Name, r)
				}
			}
		}
	}
}

// leads checks that a Service has a port by its name or number, and that it is the
// hub's own, not the one for operations.
func (i *installation) leads(service, name string, number int32) {
	i.t.Helper()
	s := find[*corev1.Service](i, service)
	if s == nil {
		i.t.Fatalf("there is no Service %s", service)
	}
	for _, p := range s.Spec.Ports {
		if (p.Name == name || p.Port == number) && p.TargetPort.String() == "http" {
			return
		}
	}
	i.t.Errorf("the Service %s has no port %s %d", service, name, number)
}

// hasPort checks that the pods of hubs have a port of a name.
func (i *installation) hasPort(name, what string) {
	i.t.Helper()
	if !slices.ContainsFunc(i.pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == name }) {
		i.t.Errorf("%s leads to the port %s, which a hub does not have", what, name)
	}
}

// checkPod checks that a pod may do nothing that it need not, and that it finds
// what it mounts and what it is told. claims are volumes that come with it.
func (i *installation) checkPod(p *corev1.PodSpec, claims []string) {
	i.t.Helper()
	if p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken {
		i.t.Error("a pod has a token of the cluster")
	}
	if p.ServiceAccountName != "" && p.ServiceAccountName != "default" && find[*corev1.ServiceAccount](i, p.ServiceAccountName) == nil {
		i.t.Errorf("there is no ServiceAccount %s", p.ServiceAccountName)
	}
	if c := p.SecurityContext; c == nil || !*c.RunAsNonRoot || *c.RunAsUser != 65532 || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		i.t.Errorf("a pod runs as %+v", c)
	}
	volumes := slices.Clone(claims)
	for _, v := range p.Volumes {
		volumes = append(volumes, v.Name)
		if v.Secret != nil {
			for _, item := range v.Secret.Items {
				i.hasKey(v.Secret.SecretName, item.Key)
			}
		}
	}
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		s := c.SecurityContext
		if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			i.t.Errorf("%s runs as %+v", c.Name, s)
		}
		for _, m := range c.VolumeMounts {
			if !slices.Contains(volumes, m.Name) {
				i.t.Errorf("%s mounts %s, which is not there", c.Name, m.Name)
			}
			if m.Name != "data" && m.Name != "tmp" && !m.ReadOnly {
				i.t.Errorf("%s could write to %s", c.Name, m.Name)
			}
		}
		seen := map[string]bool{}
		for _, e := range c.Env {
			if seen[e.Name] {
				i.t.Errorf("%s is told %s twice", c.Name, e.Name)
			}
			seen[e.Name] = true
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				i.hasKey(e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
			}
		}
	}
}

// hasKey checks that a Secret of the chart has a key. Those of others begin with
// "hub-" in the cases.
func (i *installation) hasKey(secret, key string) {
	i.t.Helper()
	if strings.HasPrefix(secret, "hub-") && find[*corev1.Secret](i, secret) == nil {
		return
	}
	if s := find[*corev1.Secret](i, secret); s == nil || len(s.Data[key]) == 0 {
		i.t.Errorf("there is no Secret %s with the key %s", secret, key)
	}
}

// checkWait checks that a hub waits for Redis for long: one that ends, Kubernetes
// starts again later and later.
func (i *installation) checkWait() {
	i.t.Helper()
	env := map[string]string{}
	for _, e := range i.pod.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	_, redis := env["RSHUB_REDIS_URL"]
	wait, _ := time.ParseDuration(env["RSHUB_START_TIMEOUT"])
	if redis && wait < 10*time.Minute {
		i.t.Errorf("a hub waits for Redis for %v", wait)
	}
}

// checkDrain checks that a hub is killed only after it had the time to end.
func (i *installation) checkDrain() {
	i.t.Helper()
	hub := i.pod.Spec.Containers[0]
	needs := time.Duration(0)
	if hub.Lifecycle != nil {
		needs = time.Duration(hub.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	for _, e := range hub.Env {
		if e.Name == "RSHUB_GRACE" {
			grace, err := time.ParseDuration(e.Value)
			if err != nil {
				i.t.Error(err)
			}
			needs += grace
		}
	}
	if killed := time.Duration(*i.pod.Spec.TerminationGracePeriodSeconds) * time.Second; killed <= needs {
		i.t.Errorf("a hub that needs up to %v to end is killed after %v", needs, killed)
	}
}
