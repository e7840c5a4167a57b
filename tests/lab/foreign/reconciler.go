package main

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	finalizer = "foreign.example/hold"
	manager   = "foreign-controller"
)

// reconciler keeps three objects for each Widget, each written by another helper of client-go or controller-runtime.
type reconciler struct {
	client.Client
	events record.EventRecorder
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	widget := &Widget{}
	if err := r.Get(ctx, request.NamespacedName, widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !widget.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.letGo(ctx, widget)
	}
	if !controllerutil.ContainsFinalizer(widget, finalizer) {
		before := widget.DeepCopyObject().(*Widget)
		controllerutil.AddFinalizer(widget, finalizer)
		// Refused where somebody else was faster: tried again with what the cache then knows.
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return ctrl.Result{}, ignoreConflict(r.Patch(ctx, widget, patch))
	}
	if err := r.keep(ctx, widget); err != nil {
		return ctrl.Result{}, ignoreConflict(err)
	}
	return ctrl.Result{}, r.report(ctx, widget)
}

// letGo deletes what no garbage collection would, then the finalizer.
func (r *reconciler) letGo(ctx context.Context, widget *Widget) error {
	loose := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: widget.Namespace, Name: widget.Name + "-loose"}}
	if err := client.IgnoreNotFound(r.Delete(ctx, loose)); err != nil {
		return err
	}
	before := widget.DeepCopyObject().(*Widget)
	if !controllerutil.RemoveFinalizer(widget, finalizer) {
		return nil
	}
	return client.IgnoreNotFound(r.Patch(ctx, widget, client.MergeFrom(before)))
}

func (r *reconciler) keep(ctx context.Context, widget *Widget) error {
	name := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: widget.Namespace, Name: widget.Name + "-" + suffix}
	}
	// Read, change, update: owned, and gone with the Widget.
	owned := &core.ConfigMap{ObjectMeta: name("owned")}
	made, err := controllerutil.CreateOrUpdate(ctx, r.Client, owned, func() error {
		owned.Data = map[string]string{"size": fmt.Sprint(widget.Spec.Size), "color": widget.Spec.Color}
		return controllerutil.SetControllerReference(widget, owned, r.Scheme())
	})
	if err != nil {
		return fmt.Errorf("keep the ConfigMap: %w", err)
	}
	if made == controllerutil.OperationResultCreated {
		r.events.Eventf(widget, core.EventTypeNormal, "Made", "the ConfigMap %s was made", owned.Name)
	}
	// Read, change, patch.
	secret := &core.Secret{ObjectMeta: name("secret")}
	if _, err = controllerutil.CreateOrPatch(ctx, r.Client, secret, func() error {
		secret.StringData = nil
		secret.Data = map[string][]byte{"size": []byte(fmt.Sprint(widget.Spec.Size))}
		return controllerutil.SetOwnerReference(widget, secret, r.Scheme())
	}); err != nil {
		return fmt.Errorf("keep the Secret: %w", err)
	}
	// Server-side apply, then a strategic patch of somebody else's field.
	loose := coreapply.ConfigMap(widget.Name+"-loose", widget.Namespace).
		WithLabels(map[string]string{"widget": widget.Name}).
		WithData(map[string]string{"size": fmt.Sprint(widget.Spec.Size)})
	if err := r.Apply(ctx, loose, client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply the ConfigMap: %w", err)
	}
	applied := &core.ConfigMap{ObjectMeta: name("loose")}
	patched := applied.DeepCopy()
	patched.Annotations = map[string]string{"foreign.example/seen": "yes"}
	return r.Patch(ctx, patched, client.StrategicMergeFrom(applied), client.FieldOwner("foreign-marker"))
}

// report writes the status, once for each generation.
func (r *reconciler) report(ctx context.Context, widget *Widget) error {
	before := widget.DeepCopyObject().(*Widget)
	widget.Status.Observed = widget.Generation
	meta.SetStatusCondition(&widget.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Kept", Message: "", ObservedGeneration: widget.Generation,
	})
	if before.Status.Observed == widget.Status.Observed {
		return nil
	}
	return client.IgnoreNotFound(r.Status().Patch(ctx, widget, client.MergeFrom(before)))
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
