package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const namespace = "foreign"

// count is how many Widgets there are.
const count = 12

// told is what of a Widget's life a person reads in the result, beside the objects.
type told struct {
	Answers []string                     `json:"answers"`
	Objects []*unstructured.Unstructured `json:"objects"`
	Events  []string                     `json:"events"`
}

func controllerStory(ctx context.Context, config *rest.Config) (any, error) {
	ctrl.SetLogger(logr.Discard())
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme, addWidgets} {
		if err := add(types); err != nil {
			return nil, err
		}
	}
	direct, err := client.New(config, client.Options{Scheme: types})
	if err != nil {
		return nil, err
	}
	story := &story{Client: direct, config: config}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"install the kind", story.install}, {"start two managers", story.start}, {"make Widgets", story.make},
		{"refusals", story.refusals}, {"change Widgets", story.change}, {"lists", story.lists},
		{"lose the leader", story.handOver}, {"delete Widgets", story.remove}, {"stop", story.stop},
	} {
		if err := step.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return story.result(ctx)
}

type story struct {
	client.Client
	config   *rest.Config
	managers []*running
	answers  []string
}

// running is a manager at work.
type running struct {
	manager ctrl.Manager
	cancel  context.CancelFunc
	done    sync.WaitGroup
	err     error
}

func (s *story) answer(format string, values ...any) {
	s.answers = append(s.answers, fmt.Sprintf(format, values...))
}

func (s *story) install(ctx context.Context) error {
	if err := s.Create(ctx, &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	// Somebody else may have installed it.
	wanted := definition()
	if err := s.Get(ctx, client.ObjectKeyFromObject(wanted), definition()); apierrors.IsNotFound(err) {
		err = s.Create(ctx, wanted)
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return until(ctx, "the kind to be established", func() (bool, error) {
		found := &apiextensions.CustomResourceDefinition{}
		err := s.Get(ctx, client.ObjectKeyFromObject(wanted), found)
		return slices.ContainsFunc(found.Status.Conditions, func(c apiextensions.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensions.Established && c.Status == apiextensions.ConditionTrue
		}), err
	})
}

func (s *story) start(ctx context.Context) error {
	for range 2 {
		made, err := s.manager(ctx)
		if err != nil {
			return err
		}
		s.managers = append(s.managers, made)
		if len(s.managers) == 1 {
			select {
			case <-made.manager.Elected():
			case <-time.After(patience):
				return errors.New("the first manager does not lead")
			}
		}
	}
	return nil
}

func (s *story) manager(ctx context.Context) (*running, error) {
	made, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme:                        s.Scheme(),
		Metrics:                       server.Options{BindAddress: "0"},
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		LeaderElection:                true,
		LeaderElectionID:              "foreign",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(15 * time.Second),
		RenewDeadline:                 ptr.To(10 * time.Second),
		RetryPeriod:                   ptr.To(time.Second),
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, err
	}
	reconciler := &reconciler{Client: made.GetClient(), events: made.GetEventRecorderFor(manager)}
	err = ctrl.NewControllerManagedBy(made).For(&Widget{}).Owns(&core.ConfigMap{}).Owns(&core.Secret{}).Complete(reconciler)
	if err != nil {
		return nil, err
	}
	byColor := func(object client.Object) []string { return []string{object.(*Widget).Spec.Color} }
	if err := made.GetFieldIndexer().IndexField(ctx, &Widget{}, "color", byColor); err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(ctx)
	running := &running{manager: made, cancel: cancel}
	running.done.Add(1)
	go func() {
		defer running.done.Done()
		running.err = made.Start(inner)
	}()
	return running, nil
}

func (s *story) make(ctx context.Context) error {
	for number := range count {
		widget := &Widget{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("widget-%02d", number),
			Labels: map[string]string{"parity": []string{"even", "odd"}[number%2]},
		}, Spec: WidgetSpec{Size: int64(number + 1)}}
		if err := s.Create(ctx, widget); err != nil {
			return err
		}
		if widget.Spec.Color != "red" {
			return fmt.Errorf("no default in the answer: %+v", widget.Spec)
		}
	}
	return s.kept(ctx, count)
}

// kept waits until so many Widgets are there and the controller is through with each.
func (s *story) kept(ctx context.Context, wanted int) error {
	return until(ctx, "the Widgets to be kept", func() (bool, error) {
		list := &WidgetList{}
		if err := s.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		for _, widget := range list.Items {
			if widget.Status.Observed != widget.Generation || !meta.IsStatusConditionTrue(widget.Status.Conditions, "Ready") {
				return false, fmt.Errorf("%s: %+v", widget.Name, widget.Status)
			}
		}
		return len(list.Items) == wanted, fmt.Errorf("%d Widgets", len(list.Items))
	})
}

// refusals notes the answers to what must not be, as client-go reads them. Their words are not compared here.
func (s *story) refusals(ctx context.Context) error {
	widget := &Widget{}
	key := types.NamespacedName{Namespace: namespace, Name: "widget-03"}
	if err := s.Get(ctx, key, widget); err != nil {
		return err
	}
	stale := widget.DeepCopyObject().(*Widget)
	widget.Annotations = map[string]string{"note": "first"}
	if err := s.Update(ctx, widget); err != nil {
		return err
	}
	note := func(what string, err error) {
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			said := status.Status()
			causes := []string{}
			if said.Details != nil {
				for _, cause := range said.Details.Causes {
					causes = append(causes, fmt.Sprintf("%s %s", cause.Type, cause.Field))
				}
			}
			s.answer("%s: %d %s %v", what, said.Code, said.Reason, causes)
			return
		}
		s.answer("%s: %v", what, err)
	}
	stale.Annotations = map[string]string{"note": "second"}
	note("a stale update", s.Update(ctx, stale))
	smaller := widget.DeepCopyObject().(*Widget)
	smaller.Spec.Size = 1
	note("a rule of the kind", s.Update(ctx, smaller))
	smaller.Spec.Size = 0
	note("a minimum", s.Patch(ctx, smaller, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":0}}`))))
	note("a wrong type", s.Patch(ctx, smaller, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":"x"}}`))))
	note("one that is there", s.Create(ctx, &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "widget-03"}}))
	note("one that is not there", s.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "none"}, widget))
	note("no namespace", s.Create(ctx, &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: "x"}}))
	note("a wrong name", s.Create(ctx, &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "A_b"}}))
	precondition := client.Preconditions{UID: ptr.To(types.UID("another"))}
	note("another uid", s.Delete(ctx, stale, precondition))
	other := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": namespace, "name": "widget-03-loose"},
		"data": map[string]any{"size": "7"},
	}}
	note("a field of another manager", s.Apply(ctx, client.ApplyConfigurationFromUnstructured(other), client.FieldOwner("other")))
	return nil
}

// change lets two write the same objects, as operators and people do.
func (s *story) change(ctx context.Context) error {
	var all sync.WaitGroup
	failures := make(chan error, count*2)
	for number := range count {
		key := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("widget-%02d", number)}
		for _, writer := range []string{"one", "two"} {
			all.Add(1)
			go func() {
				defer all.Done()
				failures <- retry.RetryOnConflict(retry.DefaultBackoff, func() error {
					widget := &Widget{}
					if err := s.Get(ctx, key, widget); err != nil {
						return err
					}
					if widget.Annotations == nil {
						widget.Annotations = map[string]string{}
					}
					widget.Annotations["by-"+writer] = "yes"
					widget.Spec.Size += 10
					return s.Update(ctx, widget)
				})
			}()
		}
	}
	all.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	blue := []byte(`[{"op":"test","path":"/spec/color","value":"red"},{"op":"replace","path":"/spec/color","value":"blue"}]`)
	for number := range 4 {
		widget := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("widget-%02d", number)}}
		if err := s.Patch(ctx, widget, client.RawPatch(types.JSONPatchType, blue)); err != nil {
			return err
		}
	}
	return s.kept(ctx, count)
}

func (s *story) lists(ctx context.Context) error {
	// In pages, by the API itself.
	pages, items := 0, 0
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		pages++
		page := &WidgetList{}
		return page, s.List(ctx, page, client.InNamespace(namespace), &client.ListOptions{Raw: &options})
	})
	list.PageSize = 5
	if err := list.EachListItem(ctx, metav1.ListOptions{}, func(runtime.Object) error { items++; return nil }); err != nil {
		return err
	}
	s.answer("%d pages of %d Widgets", pages, items)
	for what, option := range map[string]client.ListOption{
		"by label": client.MatchingLabels{"parity": "odd"}, "by field": client.MatchingFields{"spec.color": "blue"},
		"by name": client.MatchingFields{"metadata.name": "widget-07"},
	} {
		found := &WidgetList{}
		if err := s.List(ctx, found, client.InNamespace(namespace), option); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		s.answer("%s: %d Widgets", what, len(found.Items))
	}
	// By the cache, with an index of its own, and metadata alone.
	cached := s.managers[0].manager.GetClient()
	err := until(ctx, "the cache to see the change", func() (bool, error) {
		found := &WidgetList{}
		err := cached.List(ctx, found, client.InNamespace(namespace), client.MatchingFields{"color": "blue"})
		return len(found.Items) == 4, err
	})
	if err != nil {
		return err
	}
	partial := &metav1.PartialObjectMetadataList{}
	partial.SetGroupVersionKind(widgets.WithKind("WidgetList"))
	if err := s.List(ctx, partial, client.InNamespace(namespace)); err != nil {
		return err
	}
	s.answer("metadata of %d Widgets, kind %s", len(partial.Items), partial.Kind)
	slices.Sort(s.answers)
	return nil
}

// handOver stops the leader: the other manager leads and keeps what changes then.
func (s *story) handOver(ctx context.Context) error {
	first, second := s.managers[0], s.managers[1]
	select {
	case <-second.manager.Elected():
		return errors.New("two lead at once")
	default:
	}
	first.cancel()
	first.done.Wait()
	if first.err != nil {
		return first.err
	}
	select {
	case <-second.manager.Elected():
	case <-time.After(patience):
		return errors.New("the second manager does not lead")
	}
	for number := range 3 {
		widget := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("widget-%02d", number)}}
		if err := s.Patch(ctx, widget, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":100}}`))); err != nil {
			return err
		}
	}
	// What somebody deletes is made again, because the controller watches what it owns.
	gone := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "widget-05-owned"}}
	if err := s.Get(ctx, client.ObjectKeyFromObject(gone), gone); err != nil {
		return err
	}
	if err := s.Delete(ctx, gone); err != nil {
		return err
	}
	err := until(ctx, "the ConfigMap to be made again", func() (bool, error) {
		again := &core.ConfigMap{}
		err := s.Get(ctx, client.ObjectKeyFromObject(gone), again)
		return err == nil && again.UID != gone.UID, err
	})
	if err != nil {
		return err
	}
	return s.kept(ctx, count)
}

func (s *story) remove(ctx context.Context) error {
	foreground := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "widget-10"}}
	if err := s.Delete(ctx, foreground, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return err
	}
	orphaned := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "widget-08"}}
	if err := s.Delete(ctx, orphaned, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		return err
	}
	if err := s.DeleteAllOf(ctx, &Widget{}, client.InNamespace(namespace), client.MatchingLabels{"parity": "odd"}); err != nil {
		return err
	}
	// The odd ones, and two of the even ones.
	if err := s.kept(ctx, count/2-2); err != nil {
		return err
	}
	return until(ctx, "what they owned to be gone", func() (bool, error) {
		maps, secrets := &core.ConfigMapList{}, &core.SecretList{}
		if err := errors.Join(s.List(ctx, maps, client.InNamespace(namespace)), s.List(ctx, secrets, client.InNamespace(namespace))); err != nil {
			return false, err
		}
		own := slices.DeleteFunc(maps.Items, func(item core.ConfigMap) bool { return !strings.HasPrefix(item.Name, "widget-") })
		// Two ConfigMaps and a Secret each, and those that lost their owner without going.
		left := len(own) == 2*(count/2-2)+1 && len(secrets.Items) == count/2-2+1
		return left, fmt.Errorf("%d ConfigMaps, %d Secrets", len(own), len(secrets.Items))
	})
}

func (s *story) stop(context.Context) error {
	second := s.managers[1]
	second.cancel()
	second.done.Wait()
	return second.err
}

// result is every object that is left, without what differs from one server or day to the next.
func (s *story) result(ctx context.Context) (any, error) {
	result := told{Answers: s.answers}
	for _, list := range []client.ObjectList{&WidgetList{}, &core.ConfigMapList{}, &core.SecretList{}, &coordination.LeaseList{}} {
		if err := s.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(object runtime.Object) error {
			converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			if err != nil || object.(client.Object).GetName() == "kube-root-ca.crt" {
				return err
			}
			result.Objects = append(result.Objects, plain(&unstructured.Unstructured{Object: converted}))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	events := &core.EventList{}
	if err := s.List(ctx, events, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for _, event := range events.Items {
		if event.Reason != "LeaderElection" {
			result.Events = append(result.Events, fmt.Sprintf("%s %s %s: %s", event.Type, event.Reason, event.InvolvedObject.Name, event.Message))
		}
	}
	slices.Sort(result.Events)
	return result, nil
}

var uids = regexp.MustCompile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

// plain takes out what no two servers can have in common: uids, revisions and times.
func plain(object *unstructured.Unstructured) *unstructured.Unstructured {
	// A list has its kind once; the items of some have it again.
	delete(object.Object, "apiVersion")
	delete(object.Object, "kind")
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
		if _, found, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", field); found {
			_ = unstructured.SetNestedField(object.Object, "some", "metadata", field)
		}
	}
	managers := object.GetManagedFields()
	for i := range managers {
		managers[i].Time = nil
		if fields := managers[i].FieldsV1; fields != nil {
			fields.Raw = uids.ReplaceAll(fields.Raw, []byte("some"))
		}
	}
	slices.SortFunc(managers, func(a, b metav1.ManagedFieldsEntry) int {
		return strings.Compare(a.Manager+string(a.Operation)+a.Subresource, b.Manager+string(b.Operation)+b.Subresource)
	})
	object.SetManagedFields(managers)
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = "some"
	}
	object.SetOwnerReferences(owners)
	text, err := json.Marshal(object.Object["spec"])
	if err == nil && object.GetAnnotations() == nil && strings.Contains(string(text), "leaseDurationSeconds") {
		// Who led last, and when, is another each time; that it was given up is not.
		for _, field := range []string{"acquireTime", "renewTime"} {
			_ = unstructured.SetNestedField(object.Object, "some", "spec", field)
		}
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		condition.(map[string]any)["lastTransitionTime"] = "some"
	}
	if conditions != nil {
		_ = unstructured.SetNestedSlice(object.Object, conditions, "status", "conditions")
	}
	return object
}
